// The products of the gallery's kinds with a vector, as one writes them by hand. n × m: the matrix; then the arrays.
#include <stdint.h>
#ifdef __BMI2__
#include <immintrin.h>
#define take _pext_u64
#else
static uint64_t take(uint64_t w, uint64_t m) {
  uint64_t x = 0; for (uint64_t b = 1; m; b += b, m &= m - 1) if (w & m & -m) x |= b; return x; }
#endif
typedef int32_t i; typedef int64_t l; typedef uint64_t u; typedef double d;
#define ROWS for (l p = 0; p < n; p++) { d t = 0; l q = 0;
#define END y[p] = t; }
void csr(l n, l m, i *ptr, i *idx, d *v, d *x, d *y) {
  ROWS for (q = ptr[p]; q < ptr[p + 1]; q++) t += v[q] * x[idx[q]]; END }
void loose_compressed(l n, l m, i *lo, i *hi, i *idx, d *v, d *x, d *y) {
  ROWS for (q = lo[p]; q < hi[p]; q++) t += v[q] * x[idx[q]]; END }
void pcsr(l n, l m, i *ptr, i *slot, d *v, d *x, d *y) {
  ROWS for (q = ptr[p]; q < ptr[p + 1]; q++) if (slot[q] < m) t += v[q] * x[slot[q]]; END }
void sell(l n, l m, i *start, i *place, i *col, d *v, d *x, d *y) {
  ROWS i k = place[p];
  for (q = start[k / 4] + k % 4; q < start[k / 4 + 1]; q += 4) if (col[q] < m) t += v[q] * x[col[q]]; END }
void vbl(l n, l m, i *ptr, i *start, i *ofs, d *v, d *x, d *y) {
  ROWS for (l b = ptr[p]; b < ptr[p + 1]; b++)
    for (q = ofs[b]; q < ofs[b + 1]; q++) t += v[q] * x[start[b] + q - ofs[b]]; END }
void dia(l n, l m, i *ptr, i *off, d *v, d *x, d *y) {
  for (l p = 0; p < n; p++) y[p] = 0;
  for (l k = 0; k < ptr[1]; k++) { l s = off[k] + 1 - n, end = m - s < n ? m - s : n;
    for (l p = s < 0 ? -s : 0; p < end; p++) y[p] += v[k * n + p] * x[p + s]; } }
void csr_du(l n, l m, i *ptr, i *start, uint8_t *ctl, d *v, d *x, d *y) {
  for (l p = 0; p < n; p++) y[p] = 0;
  uint8_t *at = ctl, *end; l q = 0, p, j;
  for (l b = 0; 64 * b < n; b++) for (p = 64 * b, j = 0, end = ctl + start[b + 1]; at < end;) {
    int width = at[0] & 3, count = at[1]; p += at[0] >> 2; j = at[0] < 4 ? j : 0; at += 2; d t = 0;
#define UNIT(T) for (int k = 0; k < count; k++) { j += ((T *)at)[k]; t += v[q++] * x[j]; } at += count * sizeof(T);
    if (width == 0) { UNIT(uint8_t) } else if (width == 1) { UNIT(uint16_t) } else { UNIT(uint32_t) } y[p] += t; } }
void alto(l n, l m, i *ptr, u *masks, u *lin, d *v, d *x, d *y) {
  for (l p = 0; p < n; p++) y[p] = 0;
  for (l q = 0; q < ptr[1]; q++) y[take(lin[q], masks[0])] += v[q] * x[take(lin[q], masks[1])]; }
