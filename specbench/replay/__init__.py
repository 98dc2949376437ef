"""A process that plays a record over the engine's HTTP interface: same log, same answers, same timing, no GPU.

`plan` chooses the recorded request that answers an asked one, `timeline` paces the log, `answers` gives the engine's
bodies, `server` puts them together. A replay is not an engine but a substitute process: sizing, log reading and
diagnosis stay those of the recorded engine.
"""
