"""Chooses which user classes play: those of the kinds that come, and those that are no buyers.
Never changes a class: what the class picker, the command line and --tags left is what there is to choose from.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from locust import User
from locust.dispatch import UsersDispatcher

from loadtest.plan.options import wanted_from
from loadtest.plan.population import who_comes
from loadtest.shop_api import ShopError
from loadtest.users.buyers import Buyer


def kinds_that_come(environment: Any) -> dict[str, int] | None:
    """Return who comes, by weight; None when this Locust has no classes of buyers. Raises ShopError for nobody."""
    if not any(_is_buyer(each) for each in (environment.available_user_classes or {}).values()):
        return None
    options = environment.parsed_options
    offered = {
        each.kind: max(1, round(each.weight))
        for each in environment.user_classes
        if _is_buyer(each) and each.weight > 0 and _is_left(each, options)
    }
    mix = wanted_from(options).mix
    kinds = who_comes(offered, mix=mix, planned=hasattr(environment.shape_class, "arrivals"))
    if not kinds:
        raise ShopError(f"Nobody would come: no user class that was chosen is in the mix {mix}.")
    return kinds


def choose_hands(environment: Any) -> None:
    """Let Locust start users of the kinds that come only."""

    class ChosenUsers(UsersDispatcher):
        """Locust's own, for the classes that play."""

        def __init__(self, worker_nodes: list[Any], user_classes: list[type[User]]) -> None:
            super().__init__(worker_nodes, _playing(environment, user_classes) or user_classes)

    environment.dispatcher_class = ChosenUsers


def _playing(environment: Any, classes: list[type[User]]) -> list[type[User]]:
    try:
        kinds = kinds_that_come(environment)
    except ShopError:
        return classes  # the run does not begin, and says why
    left = [each for each in classes if _is_left(each, environment.parsed_options)]
    return [each for each in left if kinds is None or not issubclass(each, Buyer) or each.kind in kinds]


def _is_buyer(each: Any) -> TypeGuard[type[Buyer]]:
    return isinstance(each, type) and issubclass(each, Buyer)


def _is_left(each: type[User], options: Any) -> bool:
    """Say whether --tags and --exclude-tags leave a class a task; tasks in groups are left to Locust."""
    tags, excluded = (set(getattr(options, name, None) or ()) for name in ("tags", "exclude_tags"))
    if any(hasattr(task, "tasks") for task in each.tasks):
        return True
    marks: list[set[str]] = [getattr(task, "locust_tag_set", set()) for task in each.tasks]
    return any((not tags or own & tags) and not own & excluded for own in marks)
