"""A stand-in for the engine, under its name: see launch_server.py."""
