"""What happens by itself after a version went live is said once, in the chat."""

from __future__ import annotations

from store import adapters, settings
from tests.scripted_service import ScriptedService
from tests.test_tui_teaching import taught
from tests.tui_pilot import chatting


async def test_a_version_that_was_taken_back_is_announced_with_its_reason(service: ScriptedService) -> None:
    taught(service, 4)
    live = service.learned()
    async with chatting(service) as chat:
        await chat.until(lambda: "v1" in chat.seen("StatusLine"))
        adapters.fall_back(
            service.store, live, f"{adapters.TOOK_BACK} v1: you objected to 90% [/] of its replies"
        )
        await chat.until(lambda: "The base model answers again: took back v1" in chat.toasts)
        assert "90% [/] of its replies" in chat.toasts


async def test_learning_that_stopped_by_itself_asks(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.until(lambda: "nothing to learn" in chat.seen("StatusLine"))
        settings.put(service.store, settings.LEARNING_PAUSED, True)
        settings.put(
            service.store, settings.LEARNING_ASKS, "the drift has grown: `mynah learn resume` goes on"
        )
        await chat.until(lambda: "Learning has stopped: the drift has grown" in chat.toasts)
        await chat.until(lambda: "learning paused" in chat.seen("StatusLine"))
