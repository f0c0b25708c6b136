"""All cases, in the order in which they are shown, and the selection of some. Not here: what they do."""

from greedy import connecting, reading, selecting, shaking, sharing, storing, units

THEMES = {"Selectors and keys": selecting.CASES, "Large messages and units of work": units.CASES,
          "Reading and removing": reading.CASES, "Connections, sessions, links, queues": [*connecting.CASES, *shaking.CASES],
          "Shares and full speed": sharing.CASES, "Disks and copies": storing.CASES}
ALL = [case for cases in THEMES.values() for case in cases]


def chosen(words):
    """The cases with these names, or whose names begin with such a word and a hyphen; all without any word."""
    unknown = [word for word in words if not any(is_meant(case, word) for case in ALL)]
    if unknown:
        raise ValueError(f"no such case: {', '.join(unknown)}; there are {', '.join(case.name for case in ALL)}")
    return [case for case in ALL if not words or any(is_meant(case, word) for word in words)]


def is_meant(case, word):
    return case.name == word or case.name.startswith(f"{word}-")
