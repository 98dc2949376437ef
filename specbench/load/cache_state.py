"""The prefix cache of a server between the steps of a workload: flushed, and what is in it then.

In: a session and the server's address. Out: words and a `CacheState`. A server that does not answer is a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engines.sglang import addresses, cache
from ..records.foreign_json import storable
from ..records.types import CacheState

if TYPE_CHECKING:
    import aiohttp

_FLUSH_TIMEOUT_S = 60.0
_FLUSH_BYTES = 4096
_STATE_TIMEOUT_S = 10.0
_STATE_BYTES = 4 * 2**20


async def flush(session: aiohttp.ClientSession, url: str) -> tuple[bool, str]:
    """Empties the engine's prefix cache: whether it says that it did, and its answer."""
    import aiohttp

    from .client import redirect, up_to, why_broken

    limit = aiohttp.ClientTimeout(total=_FLUSH_TIMEOUT_S)
    try:
        async with session.post(f"{url}{addresses.FLUSH_CACHE}", timeout=limit, allow_redirects=False) as response:
            if 300 <= response.status < 400:
                return False, f"HTTP {response.status}: {storable(redirect(response.headers))}"
            body = (await up_to(response.content, _FLUSH_BYTES)).decode("utf-8", "replace")
            told = f"HTTP {response.status}: {body.strip().partition(chr(10))[0]}"
            return cache.was_flushed(response.status, body), told
    except TimeoutError:
        return False, f"failed: no answer within {_FLUSH_TIMEOUT_S:g} s"
    except (aiohttp.ClientError, OSError) as error:
        return False, f"failed: {why_broken(error)}"


async def cache_state(session: aiohttp.ClientSession, url: str, flushed: bool) -> CacheState:
    """What the engine now says of its cache. `flushed`: what it said before."""
    loads_text = await _text(session, f"{url}{addresses.LOADS}")
    metrics_text = await _text(session, f"{url}{addresses.METRICS}")
    loads = cache.loads(loads_text or "")
    told = [addresses.LOADS] if loads.used_tokens is not None else []
    evictable = cache.evictable_tokens(metrics_text or "")
    return CacheState(
        flushed=flushed,
        used_tokens=loads.used_tokens,
        running=loads.running,
        waiting=loads.waiting,
        evictable_tokens=evictable,
        source=" and ".join(told + ([addresses.METRICS] if evictable is not None else [])),
    )


async def _text(session: aiohttp.ClientSession, address: str) -> str | None:
    """A GET with bounds; None: no answer, or none of use."""
    import aiohttp

    from .client import up_to

    limit = aiohttp.ClientTimeout(total=_STATE_TIMEOUT_S)
    try:
        async with session.get(address, timeout=limit, allow_redirects=False) as response:
            body = await up_to(response.content, _STATE_BYTES)
            return body.decode("utf-8", "replace") if response.status == 200 else None
    except (TimeoutError, aiohttp.ClientError, OSError):
        return None
