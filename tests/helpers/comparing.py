"""Real trainings to compare, recorded once for all tests of a session, in a store of the test process.

    def test_something(recordings: Recordings) -> None:
        baseline, member = recordings.views("fp32", "fp16_underflow")
        own = recordings.view(Recipe(precision="FP16", seed=5))
        comparison = Comparison((baseline, member), Options())

Names are those of `compared_trainings.RECIPES`, which says what each is; any other `Recipe` is trained when it is first
asked for (one to two seconds). Views are the same objects at every call. `recordings.journal(name)` is where one lies
as files, `recordings.store` is the database, `recordings.run_id(name)` the run's id there. With
HALFSCOPE_TEST_RECORDINGS=FOLDER they are kept there from session to session: for whoever works on comparing.
Invariant: a recipe is trained by one process at a time, and once.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from halfscope.record.layout import StreamPlace, find_streams
from halfscope.record.reader import JournalReader
from halfscope_server.query import RunView, Views
from halfscope_server.store.store import Store

from tests.helpers.compared_trainings import RECIPES, Recipe
from tests.helpers.once import made_once
from tests.helpers.preloaded import Preloaded
from tests.helpers.stream import Stream

SCRIPT = Path(__file__).with_name("compared_trainings.py")
RECORDS_AT_ONCE = 500


class Recordings:
    """All of them; see the module."""

    def __init__(self, folder: Path, store: Store, python: Preloaded) -> None:
        """
        Args:
            folder: of the journals; shared by all processes of a session.
            store: an empty one.
        """
        self.store = store
        self._folder, self._python = folder, python
        self._views = Views(store)
        self._ids: dict[str, str] = {}

    def journal(self, what: str | Recipe) -> Path:
        """Where the journal of a training lies, for `find_streams` and for a sender."""
        recipe = RECIPES[what] if isinstance(what, str) else what
        return made_once(self._folder, recipe.key, lambda _: self._train(recipe))

    def run_id(self, what: str | Recipe) -> str:
        """The run in the store."""
        directory = self.journal(what)
        if directory.name not in self._ids:
            (place,) = find_streams(directory)
            ship(self.store, place)
            self._ids[directory.name] = place.run_id
        return self._ids[directory.name]

    def view(self, what: str | Recipe) -> RunView:
        """The run as pages read it."""
        view = self._views.get(self.run_id(what))
        assert view is not None
        return view

    def views(self, *what: str | Recipe) -> tuple[RunView, ...]:
        """Several, the baseline first."""
        return tuple(map(self.view, what))

    def _train(self, recipe: Recipe) -> None:
        arguments = [str(SCRIPT), str(self._folder), json.dumps(asdict(recipe))]
        environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
        # Where no checkout is: a commit made meanwhile would set them apart.
        done = self._python.run(arguments, env=environment, cwd=self._folder, strict=False)
        assert done.returncode == 0, done.stderr


def ship(store: Store, place: StreamPlace) -> None:
    """Commits a journal's records as a sender would."""
    sender = Stream(place.run_id, place.stream)
    sender.welcomed(store.grant(sender.hello(), now_us=1))
    reader = JournalReader(place)
    payloads = [bytes(entry.payload) for entry in reader.read(final=True)]
    reader.close()
    for first in range(0, len(payloads), RECORDS_AT_ONCE):
        batch = sender.batch_of(payloads[first : first + RECORDS_AT_ONCE])
        assert not store.commit([batch], now_us=2).refused
