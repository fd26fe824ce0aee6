"""The control room of a sale in the admin: one live page, and a form with a reason for each act.
Never acts without the right, never reads more often than every two seconds however many watch.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, ngettext

from inventory import redis
from inventory.exceptions import FairdropError, RedisUnavailable
from inventory.line import dead_letters
from inventory.locks.report import LockReport, report_locks
from shop.models import Sale
from shop.names.sentences import in_words
from shop.staff.actions import ROOM_ACTS, Act, ActForm, SaleActs, may, newest_act, read_number, run_act
from shop.staff.audit_page import AuditPage
from shop.staff.lists.sale_list import SaleList
from shop.staff.readings import MAX_LETTERS, read_room
from shop.staff.room import history, words
from shop.staff.shared_reading import shared
from shop.staff.suspicion.page import VOID_RIGHT, SuspicionPage

ROOM_SECONDS = 2
# An act that could only be refused now has no button; its address still answers, with the reason.
FITS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "open_now": lambda room: room["state"] == "scheduled",
    "pause": lambda room: room["state"] in ("scheduled", "open"),
    "resume": lambda room: room["state"] == "paused",
    "close": lambda room: room["state"] != "closed",
    "retire": lambda room: room["state"] == "closed" and not room["retired"],
    "revoke": lambda room: room["state"] != "closed",
    "unrevoke": lambda room: room["state"] != "closed",
    "retry": lambda room: bool(room["letters"]),
    "discard": lambda room: bool(room["letters"]),
}
PARTS = (
    "now",
    "buttons",
    "numbers",
    "engine",
    "invariants",
    "workers",
    "lock",
    "letters",
    "movements",
    "acts",
    "table",
)
TABLE_POINTS = 20


class ControlRoom(SaleActs, SaleList, SuspicionPage, AuditPage):
    """The admin of sales with a room for each."""

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path("<int:sale_id>/room/", wrap(self.room), name="shop_sale_room"),
            path("<int:sale_id>/room/live/", wrap(self.room_live), name="shop_sale_room_live"),
            path("<int:sale_id>/room/<slug:name>/", wrap(self.room_act), name="shop_sale_room_act"),
        ]
        return [*own, *super().get_urls()]

    def room(self, request: HttpRequest, sale_id: int) -> HttpResponse:
        """Show the room; a module of the page then asks room_live, with ?watch=1 the browser asks again by itself."""
        sale = self.viewed_sale(request, sale_id)
        room = reading(sale)
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Control room: %(name)s") % {"name": sale.slug},
            "sale": sale,
            "parts": parts(sale, room, user=request.user),
            "summary": summary(room),
            "watched": "watch" in request.GET,
            "whole": _shows_whole(request),
            "may_judge": request.user.has_perm(VOID_RIGHT),
        }
        answer = TemplateResponse(request, "admin/shop/sale/room.html", context)
        if "watch" in request.GET:
            answer["Refresh"] = str(ROOM_SECONDS)
        return answer

    def room_live(self, request: HttpRequest, sale_id: int) -> JsonResponse:
        """Return {at, summary, ok, parts, points}: what changed in the page, and the points after ?after= (Unix s).

        ?span=sale: the points of the whole recorded history, the first time that a page asks.
        """
        sale = self.viewed_sale(request, sale_id)
        room = reading(sale)
        try:
            after = float(request.GET.get("after", "0"))
        except ValueError:
            after = 0.0
        points = room["points"]
        if _shows_whole(request) and after <= 0:
            points = history.read_points(sale.pk)
        said = {
            "at": room["at"],
            "summary": summary(room),
            "ok": room["invariants"]["ok"],
            "parts": parts(sale, room, user=request.user),
            "points": [point for point in points if (point[0] or 0) > after],
        }
        return JsonResponse(said)

    def room_act(self, request: HttpRequest, sale_id: int, name: str) -> HttpResponse:
        """Ask for a reason and a confirmation; when confirmed, act and go back to the room."""
        sale = self.viewed_sale(request, sale_id)
        act = ROOM_ACTS.get(name)
        if act is None:
            raise Http404
        if not may(request.user, act):
            raise PermissionDenied
        form, error = _form(request, sale, act), ""
        if request.method == "POST" and form.is_valid():
            try:
                told = run_act(
                    sale, act, user=request.user, seen_act=read_number(request.POST.get("seen_act")),
                    values=form.cleaned_data,
                )  # fmt: skip
            except FairdropError as refused:
                error = in_words(refused.detail)
                sale.stock.refresh_from_db()  # shown again, with the count that a second press may build on
                form.data = shown = request.POST.copy()
                shown["seen_total"] = str(sale.stock.total)
            else:
                self.message_user(request, f"{gettext(act.title)}: {told}.", level=messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:shop_sale_room", args=[sale.pk]))
        return self._ask(request, sale, act=act, form=form, error=error)

    def _ask(self, request: HttpRequest, sale: Sale, *, act: Act, form: ActForm, error: str) -> HttpResponse:
        newest, lock = newest_act(sale), _lock(sale) if act.asks == "lock" else None
        context = {
            **self.admin_site.each_context(request),
            "title": f"{gettext(act.title)}: {sale.slug}",
            "sale": sale,
            "act": act,
            "form": form,
            "error": error,
            "seen_act": newest.pk if newest else 0,
            "newest": newest,
            "lock": lock,
            "holder": in_words(lock.holder) if lock else "",
        }
        return TemplateResponse(request, "admin/shop/sale/room_act.html", context, status=409 if error else 200)


def reading(sale: Sale) -> dict[str, Any]:
    """Return the newest reading of `sale`, two seconds old or less where it is quick, the same for all who watch."""
    # Another name than "room:", whose readings the version before expects to hold more.
    return shared(f"room-2:{sale.pk}", lambda last: read_room(sale, last), every_seconds=ROOM_SECONDS)


def parts(sale: Sale, room: dict[str, Any], *, user: AbstractBaseUser | AnonymousUser) -> dict[str, str]:
    """Return the pieces of the page that change, as HTML; with and without script it is the same.

    The reading is everybody's; the buttons are those of `user`.
    """
    fitting = [name for name in ROOM_ACTS if name not in FITS or FITS[name](room)]
    buttons = [(name, ROOM_ACTS[name]) for name in fitting if may(user, ROOM_ACTS[name])]
    newest_first = [point for point in room["points"] if point[1] is not None][-TABLE_POINTS:][::-1]
    table = [(datetime.fromtimestamp(at, tz=UTC).strftime("%H:%M:%S"), *values) for at, *values in newest_first]
    people = {"time_left": words.time_left(room), "advice": words.advice(room), "revenue": words.revenue(room)}
    context = {"sale": sale, "room": words.translated(room), "table": table, "buttons": buttons, **people}
    return {name: render_to_string(f"admin/shop/room/{name}.html", context) for name in PARTS}


def summary(room: dict[str, Any]) -> str:
    """Return the sale in one sentence; it changes only when something happened that people must hear of."""
    broken = [each["id"] for each in room["invariants"]["findings"] if not each["ok"]]
    said = [gettext("The sale is %(state)s.") % {"state": gettext("retired" if room["retired"] else room["state"])}]
    if room["redis_error"]:
        said.append(gettext("Redis does not answer."))
    if room.get("full"):
        said.append(f"{in_words(room['full'])}.")
    if broken:
        said.append(gettext("Broken: %(names)s.") % {"names": ", ".join(broken)})
    elif not room["invariants"]["error"]:
        said.append(gettext("Every invariant holds."))
    if room["line"] and (dead := room["line"]["dead"]):
        said.append(ngettext("%(n)d dead letter.", "%(n)d dead letters.", dead) % {"n": dead})
    return " ".join(said)


def _shows_whole(request: HttpRequest) -> bool:
    return request.GET.get("span") == "sale"


def _form(request: HttpRequest, sale: Sale, act: Act) -> ActForm:
    data = request.POST if request.method == "POST" else None
    letters, token = [], ""
    if act.asks == "letters":
        letters = [(each.request_id, _letter_label(each)) for each in _letters(sale)]
    if act.asks == "lock" and (lock := _lock(sale)) is not None:
        token = lock.token or ""
    return ActForm(
        request,
        act._replace(reason_required=True),
        data,
        letters=letters,
        token=token,
        seen_total=sale.stock.total,
        network=request.GET.get("network", ""),
    )


def _letters(sale: Sale) -> list[dead_letters.DeadLetter]:
    try:
        return dead_letters.dead_letters(redis.connect(), sale.stock.sku)[:MAX_LETTERS]
    except RedisUnavailable:
        return []


def _letter_label(letter: dead_letters.DeadLetter) -> str:
    n = letter.hand_outs
    text = ngettext("%(name)s, handed out %(n)d time", "%(name)s, handed out %(n)d times", n)
    return text % {"name": letter.request_id, "n": n}


def _lock(sale: Sale) -> LockReport | None:
    try:
        return report_locks(redis.connect(), [sale.stock.sku])[0]
    except RedisUnavailable:
        return None
