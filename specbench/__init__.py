"""specbench: predict, run and reconcile the memory pools of hybrid models served with speculative decoding.

What should happen and what did happen are two branches that meet once, by the names in `terms`:

    params ─┬─► budget.predict ──────────────────────────────────────────────┐
            └─► running.run ─► records.record ─► reading.pools, .latency ────┴─► judging ─► diagnose ─► notebooks, pages

Import from the module that has the name (`from specbench.budget.predict import predict`); importing a package costs
nothing. In the order of `tests/test_layering.py` each imports only what comes before it.
"""

__version__ = "0.1.0"
