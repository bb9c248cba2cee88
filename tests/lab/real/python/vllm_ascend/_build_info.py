# The image of each family has its own.
__device_type__ = "A2"
