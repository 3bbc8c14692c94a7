"""The class Tensor, the checks of its arguments, and its encoding as the header and arrays of a container."""
