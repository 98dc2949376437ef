"""specbench: predict, run and reconcile the memory pools of hybrid models served with speculative decoding.

What should happen and what did happen are two branches that meet once, by the names in `terms`:

    params.load_run ─┬─► budget.predict ──────────────────────────────┐
                     └─► run.run ─► record.RunRecord ─► pools.report ─┴─► reconcile ─► diagnose ─► notebooks, pages

Import from the module that has the name (`from specbench.budget.predict import predict`); importing the package costs nothing.
"""

__version__ = "0.1.0"
