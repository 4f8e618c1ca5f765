"""The end of a client library's consumer: it waits for nobody's answer for long.

A commit that is sent while the group's coordinator is away is answered by nobody until that is back, and close() waits for the
answer for ever. So the coordinator is asked something first, with a limit. Where it is silent nothing is committed.

After a fatal error, such as a static member's fencing by its twin, the library's close() calls no rebalance callback any
more. An assignment that it has announced, and that was not answered before, keeps its group from ending then: it waits for
that answer for ever. `unassign()` gives it. Before a fatal error close() serves the callback itself, and a call here would
take a rebalance for answered of which nobody has been told.

An assignment that is announced and not yet served must not meet the end of its group: without a coordinator the library ends the
group at once, and an `assign()` of the callback that comes in the same moment is answered by nobody, with the interpreter's lock
held. So the callback is served before the end begins.
"""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from ..messages import Place

# A callback that is there lies behind less than that.
_MOST_SERVED = 10_000
_SILENCE = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD}


def close(raw: Consumer) -> None:
    """Close a consumer of the client library. Closing again does nothing. What a callback raises meanwhile goes out at last."""
    try:
        if has_failed(raw):
            raw.unassign()
        else:
            _serve_callbacks(raw)
    finally:
        raw.close()


def _serve_callbacks(raw: Consumer) -> None:
    """Serve what waits for the next poll. Records are passed by: nothing of them was handed over.

    Raises what an application's logger has raised first, once the others have been served as well.
    """
    raised: BaseException | None = None
    with suppress(KafkaException, RuntimeError):  # RuntimeError: closed
        raw.pause(raw.assignment())  # else more come while these are passed by
    for _ in range(_MOST_SERVED):
        try:
            if raw.poll(0) is None:
                break
        except (KafkaException, RuntimeError):
            break
        except BaseException as error:
            raised = raised or error
    if raised is not None:
        raise raised


def let_go(raw: Consumer) -> None:
    """Leave without close(), which would wait for the answer to a commit. The client ends with the last who holds it.

    Once the coordinator is back it is told that this member has gone.
    """
    for leave in (raw.unassign, raw.unsubscribe):
        with suppress(KafkaException, RuntimeError):
            leave()


def is_silent(raw: Consumer, place: Place, patience: float) -> bool:
    """Whether the coordinator of this consumer's group does not answer within `patience` seconds."""
    try:
        raw.committed([TopicPartition(*place)], timeout=patience)
    except KafkaException as raised:
        return raised.args[0].code() in _SILENCE
    return False


def has_failed(raw: Consumer) -> bool:
    """Whether the client library has raised a fatal error for this consumer. Asks no broker."""
    try:
        # It names no offset, so it is never sent; after a fatal error it is refused as such before anybody looks at it.
        raw.commit(offsets=[TopicPartition("none", 0, OFFSET_INVALID)], asynchronous=False)
    except KafkaException as refused:
        return bool(refused.args[0].code() == KafkaError._FATAL)
    except RuntimeError:
        pass  # closed
    return False
