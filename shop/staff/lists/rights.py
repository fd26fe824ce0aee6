"""A list of the admin whose acts each need a right. Never does an act itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext


class ActsByRight(admin.ModelAdmin):  # type: ignore[type-arg]
    """Offers no act without its right. rights: that of each act; an action without an entry needs none."""

    rights: Mapping[str, str]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Offer no act without its right."""
        offered: dict[str, Any] = super().get_actions(request)
        return {name: each for name, each in offered.items() if self._may(request, name)}

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """As Django's, which leads away from a filter that makes no sense, and from an act under it, without a word."""
        try:
            return super().get_changelist_instance(request)
        except IncorrectLookupParameters:
            told = gettext("The filter in the address is not valid: nothing was done, and the whole list is shown.")
            self.message_user(request, told, level=messages.ERROR)
            raise

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Refuse an act without its right, where Django would only say that no action was chosen."""
        if not self._may(request, request.POST.get("action", "")):
            raise PermissionDenied
        answer: HttpResponse = super().changelist_view(request, extra_context)
        return answer

    def _may(self, request: HttpRequest, name: str) -> bool:
        return name not in self.rights or request.user.has_perm(self.rights[name])
