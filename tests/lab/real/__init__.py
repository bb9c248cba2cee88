"""The real vLLM 0.23.0 for the rack: parser, API server, engine core and scheduler; the worker computes nothing."""
