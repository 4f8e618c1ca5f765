"""A Spark worker between two tasks.

After each task pyspark.daemon resets the signal handlers of the worker and calls pyspark.worker.main again, which waits for the
next task. A worker ends there: its socket is closed, so main exits, and SIGHUP comes; os._exit follows, and no exit hook runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def around_tasks(waiting: Callable[[], None], ended: Callable[[], None]) -> None:
    """waiting: called before each further task is waited for. ended: called when none will come. Elsewhere than in a Spark
    worker this does nothing. The task that runs now is not seen.
    """
    worker = sys.modules.get("pyspark.worker")
    main: Callable[[Any, Any], None] | None = getattr(worker, "main", None)
    if worker is None or main is None or hasattr(main, "keyorder"):
        return

    def tasks(infile: Any, outfile: Any) -> None:
        waiting()
        try:
            main(infile, outfile)
        except SystemExit:  # the socket is closed, or the task has failed
            ended()
            raise

    vars(tasks)["keyorder"] = True
    vars(worker)["main"] = tasks
