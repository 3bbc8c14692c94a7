"""sscdf files of both dialects."""
