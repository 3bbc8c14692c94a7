// The products of two papers, as one writes them by hand. Arguments: the shape, the number of values, the columns of a
// factor if there are factors; the arrays of the levels and the values; the operands and the result.
#include <stdint.h>
#include <string.h>
typedef int32_t i; typedef int64_t l; typedef uint8_t u; typedef double *restrict d;

// Products of a matrix with a vector.
#define ROWS for (l p = 0; p < n; p++) { double t = 0; l q = 0;
#define END y[p] = t; }
void csr(l n, l m, l size, i *ptr, i *idx, d v, d x, d y) {
  ROWS for (q = ptr[p]; q < ptr[p + 1]; q++) t += v[q] * x[idx[q]]; END }

void roaring(l n, l m, l size, i *ptr, i *key, i *place, i *first, i *data, d v, d x, d y) {
  ROWS for (l c = ptr[p]; c < ptr[p + 1]; c++) {
    i *w = data + (place[c] >> 2), kind = place[c] & 3;
    double *z = x + ((l)key[c] << 16);
    l end = first[c + 1];
    q = first[c];
    if (kind == 0) for (; q < end; q++) t += v[q] * z[*w++];
    else if (kind == 1) for (; q < end; w++, z += 16)
      for (unsigned b = *w; b; b &= b - 1) t += v[q++] * z[__builtin_ctz(b)];
    else for (; q < end; w += 2) for (l j = w[0]; j <= w[0] + w[1]; j++) t += v[q++] * z[j]; } END }

#define NUMBER(k) for (k = s = 0;; s += 7) { l b = ctl[at++]; k |= (b & 127) << s; if (b < 128) break; }
void byte_code(l n, l m, l size, i *ptr, i *start, u *ctl, d v, d x, d y) {
  ROWS l at = start[p], j = 0, k, s;
  for (q = ptr[p]; q < ptr[p + 1];) {
    l run = 1;
    NUMBER(k)
    j += k >> 1;
    if (k & 1) { NUMBER(run) run += 4; }
    for (; run; run--) t += v[q++] * x[j++]; } END }

void mask(l n, l m, l size, i *ptr, i *idx, i *first, u *bits, d v, d x, d y) {
  for (l p = 0; 16 * p < n; p++) {
    double t[16] = {0};
    l q = first[ptr[p]];
    for (l c = ptr[p]; c < ptr[p + 1]; c++)
      for (unsigned b = bits[2 * c] | bits[2 * c + 1] << 8; b; b &= b - 1) t[__builtin_ctz(b)] += v[q++] * x[idx[c]];
    memcpy(y + 16 * p, t, 8 * (n - 16 * p < 16 ? n - 16 * p : 16)); } }

#define BUCKET(k) for (l c = ptr[k], q = begin[k]; c < ptr[k + 1]; c++) { \
  double t = 0; \
  for (l s = 0; s < 1 << k; s++, q++) { if (slot[q] < m) t += v[q] * x[slot[q]]; } \
  y[row[c]] += t; }
void buckets(l n, l m, l size, i *ptr, i *begin, i *row, i *slot, d v, d x, d y) {
  memset(y, 0, 8 * n);
  BUCKET(0) BUCKET(1) BUCKET(2) BUCKET(3) BUCKET(4) BUCKET(5) }

void vcsc(l n, l m, l size, i *ptr, i *idx, d v, d x, d y) {
  memset(y, 0, 8 * n);
  for (l j = 0; j < m; j++) for (l k = 0; k < size; k++) {
    double t = v[k] * x[j];
    for (l q = ptr[j * size + k]; q < ptr[j * size + k + 1]; q++) y[idx[q]] += t; } }

// MTTKRP of a tensor of rank 3 with two factors.
#define COLUMNS for (l k = 0; k < r; k++)
void csf(l n, l m, l o, l size, l r, i *ptr1, i *idx1, i *ptr2, i *idx2, d v, d b, d c, d y) {
  double t[r];
  memset(y, 0, 8 * r * n);
  for (l p = 0; p < n; p++) for (l f = ptr1[p]; f < ptr1[p + 1]; f++) {
    memset(t, 0, 8 * r);
    for (l q = ptr2[f]; q < ptr2[f + 1]; q++) COLUMNS t[k] += v[q] * c[r * idx2[q] + k];
    COLUMNS y[r * p + k] += t[k] * b[r * idx1[f] + k]; } }

void hicoo(l n, l m, l o, l size, l r, i *bi, i *bj, i *bk, i *ptr, i *ei, i *ej, i *ek, d v, d b, d c, d y) {
  memset(y, 0, 8 * r * n);
  for (l p = 0; ptr[p] < size; p++) {
    d yp = y + 128 * r * bi[p], bp = b + 128 * r * bj[p], cp = c + 128 * r * bk[p];
    for (l q = ptr[p]; q < ptr[p + 1]; q++)
      COLUMNS yp[r * ei[q] + k] += v[q] * bp[r * ej[q] + k] * cp[r * ek[q] + k]; } }
