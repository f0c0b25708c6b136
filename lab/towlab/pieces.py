"""Results of the pieces of a long run, kept in a file as they come, so that a run that was ended goes on.

A piece has a name and a result (anything that JSON can hold). Results that were made with other settings are
dropped. Not here: the state that a piece needs; it must look for itself what is there.
"""

import json
import os
import pathlib


class Pieces:
    """The pieces in a file, for these settings."""

    def __init__(self, path, settings):
        self.path, self.settings, self.done = pathlib.Path(path), settings, {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            kept = json.loads(self.path.read_text())
            if kept["settings"] == settings:
                self.done = kept["done"]

    def __contains__(self, name):
        return name in self.done

    def get(self, name):
        return self.done.get(name)

    def put(self, name, result):
        """Keeps a result; it is on the disk when this comes back."""
        self.done[name] = result
        fresh = self.path.with_suffix(".new")
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump({"settings": self.settings, "done": self.done}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)

    def forget(self):
        """Drops the file: the run is complete."""
        self.path.unlink(missing_ok=True)
