"""Why a server got what it got, and what to change: rules over a record or a log; remedies, checked by `predict`."""
