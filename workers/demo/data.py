"""The demo's goods and sales, written into the database and primed into Redis.
Never writes stock but through the ledger, never touches goods that are there already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count

from django.db import connection, transaction
from django.utils import timezone

from inventory.exceptions import FairdropError
from inventory.ledger import load_stock
from shop.models import Product, Sale
from shop.staff import sale_control

ACTOR = "demo"


class DemoGoodsExist(FairdropError):
    """This database holds the demo's goods already: unset DATABASE_URL and REDIS_URL, or name empty servers."""


@dataclass(frozen=True, kw_only=True)
class Goods:
    """One product and the sale that offers it. opens_in: from the moment of seeding."""

    slug: str
    title: str
    tagline: str
    description: str
    list_price: str
    price: str
    units: int
    opens_in: timedelta = timedelta()
    open_for: timedelta = timedelta(hours=12)
    per_buyer_limit: int = 1
    hold_seconds: int = 600
    # Units that may wait in line beyond the stock, in case held ones come back.
    line_capacity: int = 200
    # A file of shop/static/shop/products without its ending; the slug when it is empty.
    picture: str = ""
    # The texts in Chinese: title, tagline, description.
    chinese: tuple[str, str, str] = ("", "", "")
    # Its ticket asks for a delivery address.
    ships: bool = False
    # Why the sale stands still; empty: it does not.
    paused: str = ""


# So short that units come back and are sold again while one watches; long enough to pay on a slow machine.
FLOOD_HOLD_SECONDS = 8
# What the crowd fights for.
FLOOD = (
    Goods(
        slug="lantern",
        title="Festival Lantern No. 3",
        tagline="Hand-folded silk, warm light",
        description="Red silk folded over twelve bamboo ribs, with caps of turned brass and a tassel knotted by hand. "
        "Hangs from one cord and folds flat when the feast is over.",
        chinese=(
            "三号节庆灯笼",
            "手折丝绸，暖光",
            "红绸折覆于十二根竹骨之上，配车制黄铜顶盖与手工编结的流苏。一绳即可悬挂，节后可折平收起。",
        ),
        list_price="129.00",
        price="59.00",
        units=100,
        hold_seconds=FLOOD_HOLD_SECONDS,
    ),
    Goods(
        slug="teapot",
        title="Celadon Teapot",
        tagline="Thrown by one potter, glazed twice",
        description="Stoneware under two coats of green glaze, with a copper handle that stays cool. Pours 0.9 litres "
        "without a drip; the cup comes with it.",
        chinese=(
            "青瓷茶壶",
            "一人手拉坯，两度上釉",
            "炻器，施两层青釉，铜提梁不烫手。容量 0.9 升，出水不滴漏；附茶杯一只。",
        ),
        list_price="98.00",
        price="45.00",
        units=100,
        hold_seconds=FLOOD_HOLD_SECONDS,
    ),
    Goods(
        slug="sneaker",
        title="Court Classic ’79",
        tagline="The low-top, back for one morning",
        description="Full-grain leather, a stitched cup sole, and the blue heel of the first edition. Every pair "
        "is numbered inside the tongue.",
        chinese=(
            "经典球场鞋 ’79",
            "低帮回归，仅此一个早晨",
            "头层全粒面皮革，缝线杯底，配首版的蓝色鞋跟。每双鞋舌内侧均有编号。",
        ),
        list_price="160.00",
        price="80.00",
        units=100,
        hold_seconds=FLOOD_HOLD_SECONDS,
    ),
)


# What stands alongside them: plenty, one of tomorrow, a paused one, one that is over.
STANDING = (
    Goods(
        slug="turntable",
        title="Belt-Drive Turntable",
        tagline="Birch plinth, one moving part fewer",
        description="A heavy platter on a sapphire bearing, driven by a belt from a motor that stands alongside it. "
        "Plenty in stock: nobody has to hurry.",
        chinese=(
            "皮带驱动唱机",
            "桦木底座，少一个活动部件",
            "沉重的转盘置于蓝宝石轴承之上，由旁置电机通过皮带驱动。库存充足，不必着急。",
        ),
        list_price="320.00",
        price="279.00",
        units=5_000,
        per_buyer_limit=3,
        ships=True,
    ),
    Goods(
        slug="keyboard",
        title="Sixty-Key Keyboard",
        tagline="Hot-swap, gasket-mounted, milled from one block",
        description="An aluminium case milled from one block, switches that can be changed without a soldering "
        "iron, and keycaps that will not shine.",
        chinese=(
            "六十键键盘",
            "热插拔，Gasket 结构，整块铣削",
            "铝制外壳由整块金属铣削而成，轴体免焊可换，键帽不会打油。",
        ),
        list_price="210.00",
        price="149.00",
        units=250,
        opens_in=timedelta(days=1),
    ),
    Goods(
        slug="brass-lantern",
        title="Brass Lantern",
        tagline="The one for windy evenings",
        description="Four panes of glass in a frame of soldered brass, with a door that closes by a latch.",
        chinese=(
            "黄铜风灯",
            "适合有风的夜晚",
            "四片玻璃嵌于焊接的黄铜框中，灯门以插销闭合。",
        ),
        list_price="149.00",
        price="99.00",
        units=40,
        picture="lantern",
        paused="One carton arrived with broken glass. We count what is whole and go on.",
    ),
    Goods(
        slug="tea-bowl",
        title="Tea Bowl",
        tagline="From the same kiln as the teapot",
        description="A bowl for two hands. This drop is over; it stands here to show what that looks like.",
        chinese=(
            "茶碗",
            "与茶壶同窑",
            "双手捧用的茶碗。这次发售已结束，留在这里只为展示结束时的样子。",
        ),
        list_price="48.00",
        price="29.00",
        units=30,
        picture="teapot",
        opens_in=-timedelta(hours=2),
        open_for=timedelta(hours=1),
    ),
)


def seed_shop(*, opens_in_seconds: int) -> list[str]:
    """Make the sales to look at, alongside the three that are gone: each state that lasts has one.

    Raises DemoGoodsExist.
    """
    camera = Goods(
        slug="camera",
        title="Field Camera 35",
        tagline="All-metal rangefinder, twelve in this batch",
        description="A 35 mm rangefinder without a battery: a coupled meter needle, a shutter you can hear, and a "
        "body that opens with a coin.",
        chinese=(
            "野外相机 35",
            "全金属旁轴，本批十二台",
            "无需电池的 35 毫米旁轴相机：联动测光指针，清晰可闻的快门，用一枚硬币即可打开机身。",
        ),
        list_price="540.00",
        price="390.00",
        units=12,
        opens_in=timedelta(seconds=opens_in_seconds),
        open_for=timedelta(hours=6),
        per_buyer_limit=2,
        hold_seconds=120,
    )
    return seed((camera, *STANDING))


def seed_again(*, sales: int, units: int) -> list[str]:
    """Make the first `sales` of the flood's sales once more, open now, under numbers that are free; return the slugs.

    What was sold before stays as it is: a sale is sold out once.
    """
    taken = set(Product.objects.values_list("slug", flat=True))
    number = next(n for n in count(2) if not any(f"{item.slug}-{n}" in taken for item in FLOOD))
    return seed(
        tuple(
            replace(item, slug=f"{item.slug}-{number}", picture=item.slug, units=units, line_capacity=2 * units)
            for item in FLOOD[:sales]
        )
    )


def seed(goods: tuple[Goods, ...], *, now: datetime | None = None) -> list[str]:
    """Make goods with their stock and their sales in one transaction, then prime the sales; return their slugs.

    now: from when opens_in counts. Raises DemoGoodsExist.
    """
    now = now or timezone.now()
    with transaction.atomic():
        if Product.objects.filter(slug__in=[item.slug for item in goods]).exists():
            raise DemoGoodsExist
        slugs = [_make(item, now=now).slug for item in goods]
    for slug in slugs:
        sale_control.tell_line(slug)
    for item, slug in zip(goods, slugs, strict=True):
        if item.paused:
            sale_control.pause(slug, actor=ACTOR, reason=item.paused)
    return slugs


def _make(item: Goods, *, now: datetime) -> Sale:
    with connection.cursor() as cursor:
        stock_id = load_stock(cursor, sku=item.slug, units=item.units, actor=ACTOR, reason="the demo's first delivery")
    title_zh, tagline_zh, description_zh = item.chinese
    product = Product.objects.create(
        slug=item.slug,
        title=item.title,
        tagline=item.tagline,
        tagline_zh=tagline_zh,
        description=item.description,
        description_zh=description_zh,
        picture=f"shop/products/{item.picture or item.slug}.svg",
        list_price=Decimal(item.list_price),
        stock_id=stock_id,
    )
    return Sale.objects.create(
        slug=f"{item.slug}-drop",
        product=product,
        stock_id=stock_id,
        title=item.title,
        title_zh=title_zh,
        price=Decimal(item.price),
        opens_at=now + item.opens_in,
        closes_at=now + item.opens_in + item.open_for,
        per_buyer_limit=item.per_buyer_limit,
        hold_seconds=item.hold_seconds,
        line_capacity=item.line_capacity,
        ships=item.ships,
    )
