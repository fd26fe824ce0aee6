"""Routes of everything behind the gate; decides nothing."""

from django.conf import settings
from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path, re_path
from django.utils.functional import lazy
from django.views.generic import RedirectView

from shop.api import about, actions, emails
from shop.api import views as api
from shop.pictures.views import show_picture
from shop.salelog import views as salelog
from shop.salelog.pages import log_page
from shop.staff.lists.revenue_page import revenue_page
from shop.staff.setup.pictures import may_upload
from shop.staff.stock import stock_live
from shop.web import email_pages, languages, mail_pages, my_tickets, opening_calendar, pass_pages, ticket_actions, views

admin.autodiscover()
# Looked up when asked for: the name has a fingerprint in it that only a collected static folder knows.
FAVICON = lazy(static, str)("shop/favicon.svg")

urlpatterns = [
    path("", views.sale_list, name="sales"),
    path("past/", views.past_sales, name="past-sales"),
    path("sales/<slug:slug>/", views.sale, name="sale"),
    path("sales/<slug:slug>/opening.ics", opening_calendar.opening_file, name="sale-calendar"),
    path("sales/<slug:slug>/pass/", pass_pages.pass_page, name="sale-pass"),
    path("sales/<slug:slug>/email/", email_pages.email_page, name="sale-email"),
    path("sales/<slug:slug>/verify/", log_page, name="sale-log"),
    path("tickets/", my_tickets.my_tickets, name="my-tickets"),
    path("requests/<str:request_id>/", views.ticket, name="ticket"),
    path("requests/<str:request_id>/payment/", ticket_actions.pay, name="ticket-pay"),
    path("requests/<str:request_id>/delivery/", ticket_actions.change_delivery, name="ticket-delivery"),
    path("requests/<str:request_id>/cancel/", ticket_actions.cancel, name="ticket-cancel"),
    path("requests/<str:request_id>/link/", ticket_actions.replace_link, name="ticket-replace-link"),
    path("requests/<str:request_id>/mail/", mail_pages.change_address, name="ticket-mail"),
    path("mail/stop/<str:request_id>/<str:secret>/", mail_pages.stop, name="mail-stop"),
    path("links/<str:request_id>/<str:secret>/", ticket_actions.open_link, name="ticket-link"),
    path("language/", languages.choose, name="language"),
    path("admin/inventory/stock/live/", admin.site.admin_view(stock_live), name="stock-live"),
    path("admin/shop/revenue/", admin.site.admin_view(revenue_page), name="revenue"),
    path("admin/uploads/", admin.site.admin_view(may_upload), name="may-upload"),
    path("admin/", admin.site.urls),
    re_path(r"^pictures/(?P<name>[0-9a-f]{32}\.webp)\Z", show_picture, name="picture"),
    path("api/v1/sales/<slug:slug>/audit", api.sale_audit, name="sale-audit"),
    path("api/v1/sales/<slug:slug>/log/checkpoint", salelog.checkpoint, name="log-checkpoint"),
    path("api/v1/sales/<slug:slug>/log/tile/<str:level>/<path:number>", salelog.tile, name="log-tile"),
    path("api/v1/requests/<str:request_id>/proof", salelog.proof, name="log-proof"),
    path(".well-known/fairdrop-keys", salelog.keys, name="log-keys"),
    path("api/v1/about", about.about, name="about"),
    path("api/v1/openapi.json", api.openapi, name="openapi"),
    path("api/v1/sales/<slug:slug>/emails", emails.send_code, name="email-code"),
    path("api/v1/sales/<slug:slug>/emails/proofs", emails.give_proof, name="email-proof"),
    path("api/v1/requests/<str:request_id>/payment", actions.pay, name="pay"),
    path("api/v1/requests/<str:request_id>/cancel", actions.cancel, name="cancel"),
    path("api/v1/tickets/restore", actions.restore, name="restore"),
    path("api/v1/payments/<slug:provider_name>/notices", actions.take_notice, name="payment-notices"),
    path("favicon.ico", RedirectView.as_view(url=FAVICON)),
    path("api/<path:rest>", api.unknown_address),
]
if settings.SANDBOX_IN_USE:
    urlpatterns.append(path("sandbox/", include("shop.sandbox.urls")))
if settings.MAILBOX:
    urlpatterns.append(path("mailbox/", mail_pages.mailbox, name="mailbox"))

handler400 = "shop.web.errors.bad_request"
handler403 = "shop.web.errors.not_allowed"
handler404 = "shop.web.errors.page_not_found"
handler500 = "shop.web.errors.server_error"
