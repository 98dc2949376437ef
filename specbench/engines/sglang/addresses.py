"""Where SGLang answers what is asked of it besides requests: paths below its address.

Tuples are names of one thing, under which engines of different versions answer, newest first.
"""

from __future__ import annotations

HEALTH = "/health"
SERVER_INFO = ("/server_info", "/get_server_info")
MODEL_INFO = ("/model_info", "/get_model_info")
METRICS = "/metrics"
LOADS = "/v1/loads"
FLUSH_CACHE = "/flush_cache"
