"""What users hold: Tensor, the checks of what they give, the header and arrays of a container."""
