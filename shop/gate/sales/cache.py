"""Keeps, in process memory, every sale and what Redis last said of its stock. Never older than it says it is.
Never decides an admission that Redis could decide otherwise.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from inventory.exceptions import RedisUnavailable, SaleNotFound, Unavailable
from inventory.line import reading
from inventory.line.pubsub import wait_for_settled
from inventory.line.reading import LineFigures
from inventory.redis import AsyncClient, clocks, memory, subscription_of
from shop.gate.sales.past import PastSales
from shop.gate.sales.state import SaleEntry
from shop.gate.server.threads import ThreadPool
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard

log = structlog.get_logger(__name__)

REFRESH_SECONDS = 0.1
MIN_PAUSE_SECONDS = 0.02
SOON_SECONDS = 300.0  # a sale is looked at from so long before it opens
# A look costs some 0.05 ms a sale: so it takes a tenth of this process at most, however many there are.
PAUSE_A_SALE_SECONDS = 0.0005
CATALOGUE_SECONDS = 1.0
# So many of the sales that are over and rest are looked at with the others, in turn: however many there are, a look at
# the sales that are open is never later for it.
MAX_QUIET = 25
SLUG = re.compile(r"[-\w]{1,60}", re.ASCII)
STOP_SECONDS = 2.0
LOAD_SECONDS = 2.5  # a database that is silent, not away, must not make anybody wait longer
FAILURE_SECONDS = 0.9  # how long a failed read of the catalogue is remembered


class Board:
    """All sales that are not retired. load_cards: reads the catalogue (blocking, run in a thread)."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        load_cards: Callable[[], Sequence[SaleCard]] = catalogue.list_sales,
        prime_card: Callable[[SaleCard], None] = priming.prime_card,
    ) -> None:
        self._client = client
        self._subscription: Any = None
        self._load_cards = load_cards
        self._prime_card = prime_card
        self._by_slug: dict[str, SaleEntry] = {}
        self._by_id: dict[int, SaleEntry] = {}
        self._listed: list[SaleEntry] = []
        self.past = PastSales()  # that are not on the board, because they are retired
        self._quiet_from = 0
        self._looked_at = 0
        self._catalogue_at = 0.0
        self._failed_at = -CATALOGUE_SECONDS
        self._loading = asyncio.Lock()
        self._threads = ThreadPool("catalogue", threads=2, max_waiting=64)
        self._priming: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchers: list[Callable[[SaleEntry], None]] = []

    def watch(self, watcher: Callable[[SaleEntry], None]) -> None:
        """Call `watcher` with every sale of which there is news; it must not wait."""
        self._watchers.append(watcher)

    def _publish(self, entry: SaleEntry) -> None:
        for watcher in self._watchers:
            watcher(entry)

    def start(self) -> None:
        """Begin to refresh, until stop."""
        self._spawn(self._keep_catalogue())
        self._spawn(self._keep_figures())

    async def stop(self) -> None:
        """End refreshing."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        await self._end_subscription()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def entries(self) -> list[SaleEntry]:
        """Return every sale that is not retired, the one that opens first first."""
        return list(self._by_slug.values())

    @property
    def is_read(self) -> bool:
        """Whether the catalogue was read at least once: until then a list without sales says nothing."""
        return self._catalogue_at > 0

    def listed(self) -> list[SaleEntry]:
        """Return the sales that are open, that come, or that ended less than a day ago, as of the last reading."""
        return self._listed

    async def read_listed(self) -> list[SaleEntry]:
        """As listed; where the catalogue was never read, it is read. Raises Unavailable."""
        if not self.is_read:
            await self._load(not_before=0)
        return self._listed

    def known(self, slug: str) -> SaleEntry | None:
        """Return the sale `slug` if it is on the board."""
        return self._by_slug.get(slug)

    def known_by_id(self, sale_id: int | None) -> SaleEntry | None:
        """Return the sale with this id if it is on the board."""
        return self._by_id.get(sale_id) if sale_id is not None else None

    async def find(self, slug: str) -> SaleEntry:
        """Return the sale `slug`, retired or not; one that was made a moment ago is looked up.

        Raises SaleNotFound, Unavailable.
        """
        entry = self._by_slug.get(slug)
        if entry is not None:
            return entry
        if not SLUG.fullmatch(slug):
            raise SaleNotFound
        return await self._find_unknown(slug)

    async def find_by_id(self, sale_id: int) -> SaleEntry:
        """Return the sale with this id. Raises as find."""
        return self._by_id.get(sale_id) or await self._find_unknown(sale_id)

    async def _find_unknown(self, name: str | int) -> SaleEntry:
        entry = self.past.recall(name)
        if entry is None:
            # It may have been made a moment ago and be known to another process.
            await self._load(not_before=time.monotonic() - CATALOGUE_SECONDS / 2)
            entry = self._by_slug.get(name) if isinstance(name, str) else self._by_id.get(name)
        return entry or await self.past.find(name)

    async def _load(self, *, not_before: float) -> None:
        """Read the catalogue, unless somebody did since `not_before` (monotonic seconds). Raises Unavailable."""
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await self._load_alone(not_before=not_before)
        except TimeoutError as error:
            self._failed_at = time.monotonic()
            raise Unavailable from error

    async def _load_alone(self, *, not_before: float) -> None:
        async with self._loading:
            if self._catalogue_at >= not_before and self._by_slug:
                return
            if time.monotonic() - self._failed_at < FAILURE_SECONDS:
                raise Unavailable  # somebody tried a moment ago; asking again would only queue up behind a timeout
            try:
                cards = await self._threads.read(self._load_cards)
            except Unavailable:
                self._failed_at = time.monotonic()
                raise
            self._take_over(cards)
            self._catalogue_at = time.monotonic()

    def _take_over(self, cards: Sequence[SaleCard]) -> None:
        by_slug: dict[str, SaleEntry] = {}
        for card in cards:
            entry = self._by_slug.get(card.slug) or SaleEntry(card)
            by_slug[card.slug] = entry
            if entry.use(card):
                self._publish(entry)
            if entry.is_behind():
                self.prime_soon(entry)
        self._by_slug = by_slug
        self._by_id = {entry.card.sale_id: entry for entry in by_slug.values()}
        now = clocks.now()
        self._listed = [entry for entry in by_slug.values() if entry.card.is_listed(now)]

    async def _keep_catalogue(self) -> None:
        while True:
            try:
                await self._load(not_before=time.monotonic() - CATALOGUE_SECONDS / 2)
            except Exception as error:
                # The database is away: what we know stays good for admission, which Redis decides.
                log.warning("catalogue not read", action="catalogue_retry", error=repr(error))
            await asyncio.sleep(CATALOGUE_SECONDS)

    async def _keep_figures(self) -> None:
        while True:
            try:
                await memory.look_async(self._client)
                await clocks.look_async(self._client)
                await self._refresh_figures()
            except Exception as error:
                # Whatever it is, the board must go on looking: what is old is not used.
                log.warning("line figures not read", action="figures_retry", error=repr(error.__cause__ or error))
            await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        """Wait until a batch was settled, REFRESH_SECONDS at most: a hint comes sooner, the pause is the guarantee."""
        try:
            if self._subscription is None:
                self._subscription = subscription_of(self._client)
            hinted = await wait_for_settled(self._subscription, seconds=REFRESH_SECONDS)
            # Hints come in crowds, and one look serves them all. With very many sales a look is dear: fewer then.
            pause_seconds = MIN_PAUSE_SECONDS if hinted else 0.0
            await asyncio.sleep(max(pause_seconds, self._looked_at * PAUSE_A_SALE_SECONDS))
        except RedisUnavailable:
            await self._end_subscription()
            await asyncio.sleep(REFRESH_SECONDS)

    async def _end_subscription(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.aclose()

    async def _refresh_figures(self) -> None:
        entries = self._choose()
        self._looked_at = len(entries)
        if not entries:
            return
        moment = time.monotonic()
        found = await reading.figures_async(self._client, [(entry.card.sku, entry.card.sale_id) for entry in entries])
        # What is known of a sale whose shard is away grows old, and is not used when it matters.
        looks = [
            (entry, seen) for entry, seen in zip(entries, found, strict=True) if not isinstance(seen, RedisUnavailable)
        ]
        for entry, seen in looks:
            if entry.see(seen, moment=moment):
                self._publish(entry)
            if seen is None:
                self.prime_soon(entry)
        # Only now: a scan of one sale keeps the figures of no other waiting.
        for entry, seen in looks:
            if seen is None or not entry.is_sold_out():
                entry.forget_known_buyers()
            elif (entry.known_at_admitted, entry.known_at_records) != (seen.admitted, seen.records):
                await self._learn_known_buyers(entry, seen)

    def _choose(self) -> list[SaleEntry]:
        """Return whom to look at now: all that run or soon will, and of those that are over and rest the next few.

        One whose opening was moved far away is looked at on if anybody was let in before: they wait, hold or paid.
        Whether so is seen by one look, and by one more after it was primed.
        """
        now = clocks.seconds()
        near = []
        for entry in self._by_slug.values():
            if entry.opens <= now + SOON_SECONDS or entry.has_requests() or entry.is_due:
                near.append(entry)
            elif entry.figures is not None and entry.see(None, moment=time.monotonic()):
                self._publish(entry)  # what was last seen would be shown for hours; the database knows it better
        quiet = [entry for entry in near if entry.is_quiet(now)]
        start = self._quiet_from if self._quiet_from < len(quiet) else 0
        self._quiet_from = start + MAX_QUIET
        return [entry for entry in near if not entry.is_quiet(now)] + quiet[start : start + MAX_QUIET]

    async def _learn_known_buyers(self, entry: SaleEntry, seen: LineFigures) -> None:
        """Read who was admitted, so that a retry of theirs is told its place and everybody else "sold out" at once.

        Good until one of two figures moves: `admitted` rises with each admission, and `records` with each place that a
        ticket, priming or a late answer puts back. Both were read before the buyers, so a record that came meanwhile
        makes the next look read them again.
        """
        admissions = entry.admissions
        known = frozenset(await reading.known_buyers_async(self._client, entry.card.sku))
        if entry.admissions == admissions:  # else somebody was let in while we read, and may not be among them
            entry.known_buyers = known
            entry.known_at_admitted, entry.known_at_records = seen.admitted, seen.records

    async def look_again(self, entry: SaleEntry) -> None:
        """Read a sale from the database, and prime it if Redis is behind: a buyer was shown terms not known here.

        Raises Unavailable.
        """
        card = await self._threads.read(catalogue.find_sale_by_id, entry.card.sale_id)
        if entry.use(card):
            self._publish(entry)
        if entry.figures is None or entry.figures.revision < card.revision:
            await self._threads.read(self._prime_card, card)

    def prime_soon(self, entry: SaleEntry) -> None:
        """Put a sale that Redis does not know into it, once at a time, in the background."""
        if entry.card.sale_id not in self._priming:
            self._priming.add(entry.card.sale_id)
            self._spawn(self._prime(entry))

    async def _prime(self, entry: SaleEntry) -> None:
        try:
            await self._threads.read(self._prime_fresh, entry.card)
        except Exception as error:
            log.warning("sale not primed", action="prime_retry", sale=entry.card.slug, error=repr(error))
            await asyncio.sleep(REFRESH_SECONDS)
        finally:
            self._priming.discard(entry.card.sale_id)
            entry.is_due = True

    def _prime_fresh(self, card: SaleCard) -> None:
        # The card in memory may be a second old; the database's own figures are what Redis must get.
        self._prime_card(catalogue.find_sale_by_id(card.sale_id))
