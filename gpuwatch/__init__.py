"""gpuwatch: flight recorder and circuit breaker of a bare-metal GPU server."""

__version__ = "0.1.0"
