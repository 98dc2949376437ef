"""A server from before its start until its memory is back: asked, started, watched over, ended; or found running."""
