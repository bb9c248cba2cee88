"""A small repository in the shape of vLLM Ascend's, for the tests of building an image."""
