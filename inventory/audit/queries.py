"""The invariants that the database alone can break, a query each, all in one statement over one snapshot.
Holds no logic: a query returns what it found, or nothing.

What is put into these texts is our own (S608 is about what is not); values go alongside them.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from inventory.audit.lifecycles import (
    MARKS,
    MARKS_TWICE,
    bit_of,
    bit_of_change,
    changes_from,
    last_state,
    mark_of_movement,
    marks_due,
    units_freed,
)
from inventory.states import AFTER_RESTORE, State

# What is counted of the orders of one sale, by name.
ORDER_STATES = ("held", "paid", "expired", "cancelled", "sold_out", "refused", "refunded")
OF_SALE = {
    "decided": "sum(orders)",
    **{f"orders_{state}": f"sum(orders) FILTER (WHERE state = '{state}')" for state in ORDER_STATES},
    "units_held": "sum(units) FILTER (WHERE state = 'held')",
    "last_seq": "max(last_seq)",
}
# What is wrong with a request, by the invariant: conditions over all that is known of one. The first is named.
FLAWS = {
    "i3": f"""marks & {MARKS_TWICE} > 0 OR release_no < hold_no OR return_no < hold_no OR retake_no < release_no
              OR return_no < retake_no OR (retake_no IS NOT NULL AND release_no IS NULL)""",
    "i5": """delta <> CASE WHEN state IN ('held', 'paid') THEN -quantity ELSE 0 END OR (orders = 0 AND marks > 0)""",
    "i10": "marks >> 8 <> marks_due >> 8 OR released <> quantity * (marks_due >> 8 & 1)",
    "i12": "(money & 255) <> (CASE state WHEN 'paid' THEN 1 ELSE 0 END) OR (state = 'refunded' AND money < 256)",
    "i13": f"""orders > 0 AND ({last_state()} IS DISTINCT FROM state OR changes <> bit_count(edges::bit(32))
                            OR ended_no < decided_no OR late_no < ended_no
                            OR refunded_no < greatest(ended_no, late_no))""",
    "i14": "orders > 1",
}
# Which changes were these, but for those that a restore made again.
SOLD_OUT = f"in_sale AND bit = {bit_of(State.QUEUED, State.SOLD_OUT)}"
LAPSED = f"in_sale AND bit = {bit_of(State.HELD, State.EXPIRED)}"
# The sales of a SKU are read before, and the numbers of their orders come first: without nested loops a join looks up
# nothing by index, and each audit would read all orders that there are. Of each sale, as between two sales of a SKU lie
# the orders of the whole shop.
SALES = "SELECT sale_id FROM inventory_line WHERE stock_id = %(stock_id)s"
OF_SKU = "sale_id = ANY(%(sale_ids)s)"
OF_ORDERS = "order_id BETWEEN n.first AND n.last"


def _numbered(view: str, columns: str) -> str:
    """Return the query of what a view has from each sale's first order to its last, of whatever sale.

    OFFSET 0: the planner must not read the view before it knows the numbers, nor join first.
    """
    of_sale = f"SELECT order_id AS decided_no, {columns} FROM {view} WHERE {OF_ORDERS} OFFSET 0"  # noqa: S608
    return f"SELECT n.sale_id, e.* FROM numbers n CROSS JOIN LATERAL ({of_sale}) AS e OFFSET 0"  # noqa: S608


# Read once, looked at by many: the orders, history, movements and payments of one SKU.
# buyers: those whose orders together come to more than one of their limits.
# flaws: all that the four say of one request is added up, not joined, so that no plan can go wrong, and judged.
# edges: its changes as bits; marks: its movements by kind; money: payments kept + 256 × payments given back or due.
BOOKS = f"""
WITH stock AS MATERIALIZED (SELECT * FROM inventory_stock WHERE id = %(stock_id)s),
orders AS MATERIALIZED (
    SELECT decided_no, request_id, sale_id, buyer, quantity, buyer_limit, seq, state, in_turn, hold_expires_at,
           decided_at, changed_at, sale_id = %(sale_id)s AS here, in_order, terms_broken, stood_by, due, due_currency
    FROM inventory_decision WHERE {OF_SKU}),
numbers AS MATERIALIZED (
    SELECT sale_id, min(decided_no) AS first, max(decided_no) AS last FROM orders GROUP BY sale_id),
changes AS MATERIALIZED (
    SELECT change_no, request_id, quantity, {bit_of_change()} AS bit, at, hold_expires_at,
           actor <> '{AFTER_RESTORE}' AS in_sale
    FROM ({_numbered("inventory_change", "change_no, from_state, to_state, at, actor")}) AS all_changes
    JOIN orders USING (sale_id, decided_no)),
moves AS MATERIALIZED (
    SELECT id, kind, {mark_of_movement()} AS mark, delta, request_id, fence, actor, reason, created_at
    FROM inventory_stockmovement WHERE stock_id = %(stock_id)s),
loads AS MATERIALIZED (SELECT number, change FROM inventory_load WHERE stock_id = %(stock_id)s),
payments AS MATERIALIZED (
    SELECT request_id, p.reference, p.state, p.amount, p.currency, p.changed_at, p.created_at, p.provider,
           (p.amount, p.currency) = (due, due_currency) AS agreed
    FROM ({_numbered("inventory_payment", "reference, state, amount, currency, changed_at, created_at, provider")}) AS p
    JOIN orders USING (sale_id, decided_no)),
buyers AS MATERIALIZED (
    SELECT sale_id, buyer FROM orders WHERE hold_expires_at IS NOT NULL OR state IN ('held', 'paid')
    GROUP BY sale_id, buyer HAVING sum(quantity) > min(buyer_limit)),
by_state AS MATERIALIZED (
    SELECT state, sum(quantity) AS all_units, count(*) FILTER (WHERE here) AS orders,
           sum(quantity) FILTER (WHERE here) AS units, max(seq) FILTER (WHERE here) AS last_seq,
           count(*) FILTER (WHERE here AND in_order) AS in_order, max(changed_at) AS last_changed,
           max(decided_at) FILTER (WHERE in_turn OR stood_by) AS last_decided,
           count(*) FILTER (WHERE stood_by) AS stood_by
    FROM orders GROUP BY state),
tally AS MATERIALIZED (
    SELECT coalesce(sum(all_units) FILTER (WHERE state = 'held'), 0) AS held,
           coalesce(sum(all_units) FILTER (WHERE state = 'paid'), 0) AS sold,
           coalesce(sum(in_order), 0) AS decided_in_order, max(last_changed) AS last_changed,
           max(last_decided) AS last_decided, coalesce(sum(stood_by), 0) AS stood_by,
           {", ".join(f"coalesce({what}, 0) AS {name}" for name, what in OF_SALE.items())}
    FROM by_state),
ledger AS MATERIALIZED (
    SELECT coalesce(sum(delta), 0) AS available,
           coalesce(sum(delta) FILTER (WHERE kind IN ('load', 'adjust')), 0) AS total,
           coalesce(sum(delta) FILTER (WHERE kind IN ('load', 'adjust') AND delta > 0), 0) AS put_in,
           max(created_at) FILTER (WHERE delta > 0) AS last_freed,
           min(id) FILTER (WHERE free < 0) AS short, min(id) FILTER (WHERE fence < highest) AS stale,
           max(fence) AS fence
    FROM (SELECT *, sum(delta) OVER until_here AS free, max(fence) OVER until_here AS highest FROM moves
          WINDOW until_here AS (ORDER BY id ROWS UNBOUNDED PRECEDING)) AS running),
facts AS (
    SELECT request_id, state, quantity, NULL::int AS bit, NULL::bigint AS change_no, NULL::int AS mark,
           NULL::int AS delta, NULL::bigint AS move_no, NULL::int AS money FROM orders
    UNION ALL SELECT request_id, NULL, NULL, bit, change_no, NULL, NULL, NULL, NULL FROM changes
    UNION ALL SELECT request_id, NULL, NULL, NULL, NULL, mark, delta, id, NULL FROM moves WHERE mark IS NOT NULL
    UNION ALL SELECT request_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                     CASE state WHEN 'captured' THEN 1 WHEN 'refund_due' THEN 256 WHEN 'refunded' THEN 256 END
              FROM payments),
flaws AS MATERIALIZED (
    SELECT {", ".join(f"min(request_id) FILTER (WHERE {what}) AS {name}" for name, what in FLAWS.items())}
    FROM (SELECT *, {marks_due()} AS marks_due FROM (
        SELECT request_id, count(state) AS orders, max(state) AS state, coalesce(max(quantity), 0) AS quantity,
               coalesce(bit_or(bit), 0) AS edges, count(bit) AS changes,
               max(change_no) FILTER (WHERE bit & {changes_from(State.QUEUED)} > 0) AS decided_no,
               max(change_no) FILTER (WHERE bit & {changes_from(State.HELD)} > 0) AS ended_no,
               max(change_no) FILTER (WHERE bit & {changes_from(State.EXPIRED, State.CANCELLED)} > 0) AS late_no,
               max(change_no) FILTER (WHERE bit & {changes_from(State.PAID)} > 0) AS refunded_no,
               coalesce(sum(mark), 0) AS marks, coalesce(sum(delta), 0) AS delta,
               coalesce(sum(delta) FILTER (WHERE mark = {MARKS["release"]}), 0) AS released,
               max(move_no) FILTER (WHERE mark = {MARKS["hold"]}) AS hold_no,
               min(move_no) FILTER (WHERE mark = {MARKS["release"]}) AS release_no,
               min(move_no) FILTER (WHERE mark = {MARKS["retake"]}) AS retake_no,
               min(move_no) FILTER (WHERE mark = {MARKS["return"]}) AS return_no,
               coalesce(sum(money), 0) AS money
        FROM facts GROUP BY request_id) AS added) AS request)
"""  # noqa: S608
# What is told of a flawed request: where it stands, what it moved, what became of it, what was paid.
STANDS = """coalesce((SELECT string_agg(state || ' with ' || quantity || ' units', ', ') FROM orders o
                     WHERE o.request_id = flaws.{0}), 'not decided')"""
MOVED = """coalesce((SELECT string_agg(kind || ' ' || delta, ', ' ORDER BY id) FROM moves m
                    WHERE m.request_id = flaws.{0}), 'nothing')"""
HISTORY = """coalesce((SELECT string_agg(from_state || ' → ' || to_state, ', ' ORDER BY change_no)
                      FROM inventory_change c WHERE c.request_id = flaws.{0} AND c.order_id = ANY(ARRAY(
                          SELECT decided_no FROM orders o WHERE o.request_id = flaws.{0}))), 'none')"""
PAID = """coalesce((SELECT string_agg(state || ' ' || amount || ' ' || currency, ', ') FROM payments p
                   WHERE p.request_id = flaws.{0}), 'nothing')"""


def _told(number: str, *parts: str) -> str:
    """Return the query that names the request with this flaw; parts: SQL texts to put behind its id."""
    texts = " || ".join(part.format(number) for part in parts)
    return f"SELECT {number} || {texts} FROM flaws WHERE {number} IS NOT NULL"  # noqa: S608


# Each is one value: what is wrong, with the request or the units by name, or NULL. Naming one is enough.
QUERIES: tuple[tuple[str, str, str], ...] = (
    (
        "I1",
        _("nothing is oversold, now or at any moment before"),
        """SELECT coalesce(
               (SELECT 'held and sold ' || t.held + t.sold || ' of ' || s.total FROM stock s, tally t
                WHERE t.held + t.sold > s.total),
               (SELECT 'movement ' || m.id || ' of ' || coalesce(request_id, actor) || ' took units that were not there'
                FROM ledger l JOIN moves m ON m.id = l.short))""",
    ),
    (
        "I2",
        _("every unit is somewhere, and the ledger says the same"),
        """SELECT 'available ' || s.available || ', held ' || s.held || ', sold ' || s.sold || ', total ' || s.total
                  || '; ledger says ' || l.available || ' available of ' || l.total
           FROM stock s, ledger l
           WHERE s.available <> l.available OR s.total <> l.total OR s.available + s.held + s.sold <> s.total""",
    ),
    (
        "I2b",
        _("the counters say what the orders say"),
        """SELECT 'held ' || s.held || ' but orders hold ' || t.held
                  || '; sold ' || s.sold || ' but orders paid ' || t.sold
           FROM stock s, tally t WHERE s.held <> t.held OR s.sold <> t.sold""",
    ),
    (
        "I3",
        _("a request takes its units once, and gives them back before it takes them again"),
        _told("i3", "' moved: '", MOVED),
    ),
    (
        "I5",
        _("no unit moves without its request, and the other way round"),
        _told("i5", "' is '", STANDS, "'; it moved: '", MOVED),
    ),
    (
        # Then: whenever units were taken, by the limit of the order that took them. Only of `buyers`, because a running
        # sum of everybody's takes long; where there are none, nothing is joined either.
        "I7",
        _("nobody has more than the limit"),
        f"""SELECT coalesce(
               (SELECT buyer || ' has ' || units || ' of sale ' || sale_id || ', the limit is ' || highest
                FROM (SELECT sale_id, buyer, sum(quantity) AS units, max(buyer_limit) AS highest
                      FROM orders JOIN buyers USING (sale_id, buyer)
                      WHERE EXISTS (SELECT FROM buyers) AND state IN ('held', 'paid') GROUP BY sale_id, buyer) AS each
                WHERE units > highest LIMIT 1),
               (SELECT buyer || ' had ' || units || ' of sale ' || sale_id || ' when ' || request_id || ' took '
                       || quantity || ', the limit was ' || buyer_limit
                FROM (SELECT *, sum(-freed) OVER (PARTITION BY sale_id, buyer ORDER BY change_no
                                                  ROWS UNBOUNDED PRECEDING) AS units
                      FROM (SELECT change_no, request_id, in_sale, {units_freed()} AS freed FROM changes) AS moved
                      JOIN orders USING (request_id)
                      WHERE freed <> 0 AND EXISTS (SELECT FROM buyers) AND (sale_id, buyer) IN (
                          SELECT sale_id, buyer FROM buyers)) AS running
                WHERE freed < 0 AND in_sale AND units > buyer_limit ORDER BY change_no LIMIT 1))""",  # noqa: S608
    ),
    (
        "I8",
        _("decided in the order of the line"),
        # What is too little for one on standby passes it over. units 0: those who wait, whom nobody on standby may
        # pass; else those on standby for so many units, whom nobody may pass who was held as many.
        """SELECT coalesce(
               (SELECT request_id || ' was decided after one that came later' FROM (
                    SELECT request_id, seq, lag(seq) OVER (ORDER BY decided_no) AS before FROM orders WHERE in_turn)
                    AS ordered
                WHERE seq <= before LIMIT 1),
               (SELECT request_id || ' was decided after one that came later and fitted no better' FROM (
                    SELECT o.request_id, o.seq, CASE WHEN stood_by THEN quantity ELSE 0 END = units AS judged,
                           max(o.seq) FILTER (WHERE hold_expires_at IS NOT NULL AND quantity >= units
                                              AND (units > 0 OR stood_by))
                           OVER (PARTITION BY units ORDER BY o.decided_no
                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                    FROM orders o, (SELECT 0 AS units UNION SELECT DISTINCT quantity FROM orders WHERE stood_by) AS k
                    WHERE (o.in_turn OR o.stood_by) AND (SELECT stood_by FROM tally) > 0) AS passed
                WHERE judged AND seq < before LIMIT 1))""",
    ),
    (
        # History, loads and adjustments are numbered in one row under the stock's lock, so their running sum is what
        # was free at each decision. The oldest loads have no number: the clock says which changes came before them.
        "I9",
        _("nobody was told sold out while a unit was free for them"),
        f"""SELECT request_id || ' wanted ' || quantity || ', ' || free || ' were free' FROM (
                SELECT request_id, quantity, sold_out,
                       sum(freed) OVER (ORDER BY number, is_load ROWS UNBOUNDED PRECEDING) AS free
                FROM (SELECT change_no AS number, false AS is_load, request_id, quantity, {SOLD_OUT} AS sold_out,
                             {units_freed()} AS freed
                      FROM changes WHERE change_no <= (SELECT max(change_no) FROM changes WHERE {SOLD_OUT})
                      UNION ALL SELECT number, true, NULL, NULL, false, change FROM loads
                      UNION ALL SELECT coalesce((SELECT max(change_no) FROM changes WHERE at < m.created_at), 0), true,
                                       NULL, NULL, false, delta
                                FROM (SELECT created_at, delta, row_number() OVER (ORDER BY id DESC) AS place
                                      FROM moves WHERE kind IN ('load', 'adjust')) AS m
                                WHERE place > (SELECT count(*) FROM loads)) AS units) AS told
            WHERE sold_out AND quantity <= free LIMIT 1""",  # noqa: S608
    ),
    (
        "I10",
        _("a hold ends once, and gives back what it held"),
        _told("i10", "' is '", STANDS, "'; its history: '", HISTORY, "'; it moved: '", MOVED),
    ),
    (
        # The end of a hold is written with the decision and never moved (I23), and the same clock says when it ended:
        # so the early side needs no grace. What ended before a restore is ended again afterwards, whatever its new end.
        "I11",
        _("no hold outlives its time, and none lapses before it"),
        f"""SELECT coalesce(
               (SELECT request_id || ' is still held, ' || round(extract(epoch FROM now() - hold_expires_at))
                       || ' s after its end'
                FROM orders WHERE state = 'held' AND hold_expires_at < now() - make_interval(secs => %(hold_grace)s)
                ORDER BY hold_expires_at LIMIT 1),
               (SELECT request_id || ' lapsed ' || round(extract(epoch FROM hold_expires_at - at), 3)
                       || ' s before its end'
                FROM changes WHERE {LAPSED} AND at < hold_expires_at
                ORDER BY change_no LIMIT 1))""",  # noqa: S608
    ),
    (
        "I12",
        _("money is kept for goods only, and goods are given for money only"),
        f"""SELECT coalesce(
               ({_told("i12", "' is '", STANDS, "'; payments: '", PAID)}),
               (SELECT 'payment ' || reference || ' of ' || request_id || ' is of ' || amount || ' ' || currency
                       || ', which is not the price'
                FROM payments WHERE state = 'captured' AND NOT agreed LIMIT 1),
               (SELECT 'payment ' || reference || ' of ' || request_id || ' is due back for '
                       || round(extract(epoch FROM now() - changed_at)) || ' s'
                FROM payments
                WHERE state = 'refund_due' AND changed_at < now() - make_interval(secs => %(refund_grace)s)
                LIMIT 1))""",  # noqa: S608
    ),
    (
        "I13",
        _("every change was allowed, and history leads to where the order stands"),
        _told("i13", "' is '", STANDS, "'; its history: '", HISTORY),
    ),
    (
        "I14",
        _("a request is one order"),
        _told("i14", "' has more than one: '", STANDS),
    ),
    (
        "I16",
        _("fences rise with the movements"),
        """SELECT coalesce(
               (SELECT request_id || ' moved under fence ' || m.fence || ' after a higher one'
                FROM ledger l JOIN moves m ON m.id = l.stale),
               (SELECT 'a movement has fence ' || l.fence || ', the stock has seen ' || s.fence FROM stock s, ledger l
                WHERE l.fence > s.fence))""",
    ),
    (
        "I20",
        _("stock changes through the ledger only, and what is written stays written"),
        """SELECT coalesce(
               (SELECT 'movement ' || id || ' (' || kind || ' of ' || delta || ') has no '
                       || CASE actor WHEN '' THEN 'actor' ELSE 'reason' END
                FROM moves WHERE actor = '' OR (kind = 'adjust' AND reason = '') LIMIT 1),
               (SELECT 'the guard ' || g.guard || ' of ' || g.place || ' is off'
                FROM unnest(%(places)s::text[], %(guards)s::text[]) AS g (place, guard)
                WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = to_regclass(g.place)
                                  AND t.tgname = g.guard AND t.tgenabled IN ('O', 'A')) LIMIT 1),
               (SELECT current_user || ' may change rows of ' || place FROM unnest(%(sealed)s::text[]) AS place
                WHERE has_table_privilege(to_regclass(place), 'UPDATE, DELETE, TRUNCATE')
                  AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) LIMIT 1))""",
    ),
    (
        "I23",
        _("every order has the terms under which its place was given"),
        "SELECT request_id || ' has other terms than its version' FROM orders WHERE terms_broken LIMIT 1",
    ),
    (
        "I24",
        _("every payment was answered by its provider"),
        """SELECT 'payment ' || reference || ' of ' || request_id || ' is pending for '
                  || round(extract(epoch FROM now() - created_at) / 86400) || ' days at ' || provider
           FROM payments WHERE state = 'pending' AND created_at < now() - make_interval(secs => %(answer_grace)s)
           ORDER BY created_at LIMIT 1""",
    ),
)

# What is counted as well: of the stock, of the sale, and (in ms) how long ago the line was last decided, an order last
# changed, and a unit last became free.
COUNTS = f"""
SELECT s.total, l.put_in, s.available, s.held, s.sold, s.fence, s.version, {", ".join(f"t.{name}" for name in OF_SALE)},
       t.decided_in_order, (SELECT ordinal_base FROM inventory_line WHERE sale_id = %(sale_id)s) AS ordinal_base,
       (extract(epoch FROM now() - t.last_decided) * 1000)::bigint AS decided_ms_ago,
       (extract(epoch FROM now() - t.last_changed) * 1000)::bigint AS changed_ms_ago,
       (extract(epoch FROM now() - l.last_freed) * 1000)::bigint AS freed_ms_ago
FROM stock s, tally t, ledger l
"""  # noqa: S608


def statement() -> str:
    """Return all of it as one statement with one row: a column an invariant, then the counts."""
    columns = ", ".join(f'({query}) AS "{number}"' for number, _, query in QUERIES)
    return f"{BOOKS} SELECT {columns}, counts.* FROM ({COUNTS}) AS counts"  # noqa: S608
