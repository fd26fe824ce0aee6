-- A running shop of revision c612c29, made by its real processes: see make.py in this folder.
-- Moments are as they were then: sales are open until 2099, long holds end after 2030, the others are over.
INSERT INTO public.inventory_stock (id, sku, total, available, held, sold, fence, version) VALUES
	(1, 'drum', 5, 5, 0, 0, 1795332349461253, 3),
	(3, 'clock', 2, 0, 2, 0, 1795332357970833, 2),
	(2, 'lamp', 4, 0, 3, 1, 1795332358016833, 4),
	(4, 'print', 1, 0, 0, 1, 1795332363591506, 3),
	(5, 'vase', 5, 5, 0, 0, 0, 1),
	(6, 'kite', 10, 7, 3, 0, 1795332371743770, 2),
	(7, 'globe', 10, 10, 0, 0, 0, 1),
	(8, 'chess', 2, 2, 0, 0, 0, 1);
INSERT INTO public.inventory_stockmovement (id, kind, delta, request_id, fence, actor, reason, created_at, stock_id) VALUES
	(1, 'load', 5, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:25:13.411834+00', 1),
	(2, 'hold', -1, '1-bY-8iFXWtGTsPHg0m23o1A', 1795332349461253, 'settler', '', '2026-11-22 07:25:49.510272+00', 1),
	(3, 'release', 1, '1-bY-8iFXWtGTsPHg0m23o1A', NULL, 'buyer', 'cancelled', '2026-11-22 07:25:52.702792+00', 1),
	(4, 'load', 4, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:25:53.887696+00', 2),
	(5, 'load', 2, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:25:55.483799+00', 3),
	(6, 'load', 1, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:25:56.688023+00', 4),
	(7, 'hold', -1, '3-gbuw9SDt5uPIicBfV1AORQ', 1795332357970833, 'settler', '', '2026-11-22 07:25:58.007273+00', 3),
	(8, 'hold', -1, '3-Pb0o9z9V0I1_lbw27yd0hg', 1795332357970833, 'settler', '', '2026-11-22 07:25:58.007273+00', 3),
	(9, 'hold', -1, '2-KCGarrBCMPqAEjVyRnZrlw', 1795332358016833, 'settler', '', '2026-11-22 07:25:58.029019+00', 2),
	(10, 'hold', -1, '2-NFvbkqfPnEW5gbmNqBae3A', 1795332358016833, 'settler', '', '2026-11-22 07:25:58.029019+00', 2),
	(11, 'hold', -1, '2-MWKjDh1gLj13Kh3buejr1w', 1795332358016833, 'settler', '', '2026-11-22 07:25:58.029019+00', 2),
	(12, 'hold', -1, '2-ANOQROJLmnyTenZVex5l_g', 1795332358016833, 'settler', '', '2026-11-22 07:25:58.037681+00', 2),
	(13, 'hold', -1, '4--J_qNcEi8NyBq6hv18FCUA', 1795332358041854, 'settler', '', '2026-11-22 07:25:58.048225+00', 4),
	(14, 'load', 5, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:26:07.689048+00', 5),
	(15, 'load', 10, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:26:10.465742+00', 6),
	(16, 'hold', -1, '6-35LBdzr7MltS5AZ9vp1Fxg', 1795332371743770, 'settler', '', '2026-11-22 07:26:11.76694+00', 6),
	(17, 'hold', -1, '6-izS3jpinYFBk9iNqRNpvPw', 1795332371743770, 'settler', '', '2026-11-22 07:26:11.76694+00', 6),
	(18, 'hold', -1, '6-GJ9kWz2qnPoYlVt7qJeDzg', 1795332371743770, 'settler', '', '2026-11-22 07:26:11.76694+00', 6),
	(19, 'load', 10, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:26:13.197969+00', 7),
	(20, 'load', 2, NULL, NULL, 'anna', 'first delivery', '2026-11-22 07:26:15.745318+00', 8);
INSERT INTO public.sandbox_charge (id, reference, amount, currency, title, return_url, notice_url, state, created_at) VALUES
	(1, '01fc174cfa5541feaf5b7ea708aa450a', 15.00, 'EUR', '1 × lamp', '/requests/2-KCGarrBCMPqAEjVyRnZrlw/', 'http://127.0.0.1:20393/api/v1/payments/sandbox/notices', 'captured', '2026-11-22 07:26:01.138594+00'),
	(2, 'ea9f31554c46438ead7e8ee8d91ecc25', 15.00, 'EUR', '1 × print', '/requests/4--J_qNcEi8NyBq6hv18FCUA/', 'http://127.0.0.1:20393/api/v1/payments/sandbox/notices', 'captured', '2026-11-22 07:26:01.173401+00'),
	(3, '014d1e60792f4830969947bd8a9c0a63', 15.00, 'EUR', '1 × lamp', '/requests/2-NFvbkqfPnEW5gbmNqBae3A/', 'http://127.0.0.1:20393/api/v1/payments/sandbox/notices', 'open', '2026-11-22 07:26:01.212322+00');
INSERT INTO public.sandbox_event (id, event_id, kind, happened_at, due_at, attempts, delivered_at, last_error, charge_id) VALUES
	(1, 'evt_bce6330fe9fa748be5be1f1c', 'captured', '2026-11-22 07:26:01.14099+00', NULL, 0, NULL, '', 1),
	(2, 'evt_a3c60268422661ab6f82bae8', 'captured', '2026-11-22 07:26:01.174746+00', NULL, 0, NULL, '', 2);
INSERT INTO public.shop_product (id, slug, title, tagline, description, picture, list_price, stock_id) VALUES
	(1, 'drum', 'drum', '', '', '', 20.00, 1),
	(2, 'lamp', 'lamp', '', '', '', 20.00, 2),
	(3, 'clock', 'clock', '', '', '', 20.00, 3),
	(4, 'print', 'print', '', '', '', 20.00, 4),
	(5, 'vase', 'vase', '', '', '', 20.00, 5),
	(6, 'kite', 'kite', '', '', '', 20.00, 6),
	(7, 'globe', 'globe', '', '', '', 20.00, 7),
	(8, 'chess', 'chess', '', '', '', 20.00, 8);
INSERT INTO public.shop_sale (id, slug, title, price, currency, opens_at, closes_at, per_buyer_limit, hold_seconds, room, switch, pause_reason, terms_version, request_key, product_id, stock_id) VALUES
	(1, 'drum', 'drum', 15.00, 'EUR', '2026-11-22 07:25:08.415855+00', '2099-01-01 00:00:00+00', 1, 315360000, 200, 'on', '', 1, '1d27d966ea5cf1cf4e1b56d9b13249e4', 1, 1),
	(2, 'lamp', 'lamp', 15.00, 'EUR', '2026-11-22 07:25:48.89268+00', '2099-01-01 00:00:00+00', 1, 315360000, 200, 'on', '', 1, '6c901ccbc75e7b876170ad076d53f103', 2, 2),
	(3, 'clock', 'clock', 15.00, 'EUR', '2026-11-22 07:25:50.486709+00', '2099-01-01 00:00:00+00', 1, 20, 200, 'on', '', 1, 'd4b97cff0790003c454a0c889237bb58', 3, 3),
	(4, 'print', 'print', 15.00, 'EUR', '2026-11-22 07:25:51.690871+00', '2099-01-01 00:00:00+00', 1, 315360000, 200, 'closed', '', 2, 'adcf173cc0815638978418c24d45f6c0', 4, 4),
	(5, 'vase', 'vase', 15.00, 'EUR', '2026-11-22 07:26:02.69184+00', '2099-01-01 00:00:00+00', 1, 315360000, 200, 'on', '', 1, 'fc4fcce813d7b785fe2c093fddb23365', 5, 5),
	(6, 'kite', 'kite', 15.00, 'EUR', '2026-11-22 07:26:05.468634+00', '2099-01-01 00:00:00+00', 1, 315360000, 200, 'on', '', 1, 'b1f59c51d68cc560fde5e89ccf5e75c7', 6, 6),
	(7, 'globe', 'globe', 20.00, 'EUR', '2026-11-22 07:26:08.20052+00', '2099-01-01 00:00:00+00', 1, 315360000, 200, 'on', '', 2, 'b6c6007ba1ee73e16cba9b7506505d0a', 7, 7),
	(8, 'chess', 'chess', 15.00, 'EUR', '2026-11-22 07:26:10.748395+00', '2099-01-01 00:00:00+00', 1, 315360000, 200, 'paused', 'stocktaking', 2, '3ef1ee870353fe2757fa0fd7f0eee5e6', 8, 8);
INSERT INTO public.shop_order (id, request_id, buyer, quantity, buyer_limit, seq, state, reason, unit_price, currency, hold_expires_at, decided_at, sale_id, actor, changed_at, restored) VALUES
	(1, '1-ZPAmI-mLiPS00XhHV-dyaw', 'ViPf6ybxpA4trUHhgtPsgQ', 1, 1, 1795332313837096, 'refused', 'dead_letter', 15.00, 'EUR', NULL, '2026-11-22 07:25:23.159148+00', 1, 'settler', '2026-11-22 07:25:23.159148+00', false),
	(2, '1-bY-8iFXWtGTsPHg0m23o1A', 'rcOJYenApYqueLk7PMR3nQ', 1, 1, 1795332344604470, 'cancelled', 'cancelled by the buyer', 15.00, 'EUR', '2036-11-19 07:25:49.49425+00', '2026-11-22 07:25:49.49425+00', 1, 'buyer', '2026-11-22 07:25:52.694525+00', false),
	(3, '3-gbuw9SDt5uPIicBfV1AORQ', 'IYGhZIPqtfjcMW8d6VFS9w', 1, 1, 1795332355830773, 'held', '', 15.00, 'EUR', '2026-11-22 07:26:17.996497+00', '2026-11-22 07:25:57.996497+00', 3, 'settler', '2026-11-22 07:25:57.996497+00', false),
	(4, '3-Pb0o9z9V0I1_lbw27yd0hg', '87umeZu_gkDXbWMfh_v3Uw', 1, 1, 1795332355834057, 'held', '', 15.00, 'EUR', '2026-11-22 07:26:17.996497+00', '2026-11-22 07:25:57.996497+00', 3, 'settler', '2026-11-22 07:25:57.996497+00', false),
	(6, '2-NFvbkqfPnEW5gbmNqBae3A', 'FgdrGogOU6Jv3Ze-Y0Qqew', 1, 1, 1795332354382552, 'held', '', 15.00, 'EUR', '2036-11-19 07:25:58.025051+00', '2026-11-22 07:25:58.025051+00', 2, 'settler', '2026-11-22 07:25:58.025051+00', false),
	(7, '2-MWKjDh1gLj13Kh3buejr1w', 'lqA4KgrhzUbUf4Q5RfVFhA', 1, 1, 1795332354386034, 'held', '', 15.00, 'EUR', '2036-11-19 07:25:58.025051+00', '2026-11-22 07:25:58.025051+00', 2, 'settler', '2026-11-22 07:25:58.025051+00', false),
	(8, '2-ANOQROJLmnyTenZVex5l_g', 'Ri-Q-ZrMcLN4qA9iibZY9A', 1, 1, 1795332354389471, 'held', '', 15.00, 'EUR', '2036-11-19 07:25:58.034366+00', '2026-11-22 07:25:58.034366+00', 2, 'settler', '2026-11-22 07:25:58.034366+00', false),
	(5, '2-KCGarrBCMPqAEjVyRnZrlw', '4xPjw4UuJb_9_9zeDhu6Mg', 1, 1, 1795332354378677, 'paid', '', 15.00, 'EUR', '2036-11-19 07:25:58.025051+00', '2026-11-22 07:25:58.025051+00', 2, 'payment', '2026-11-22 07:26:01.147103+00', false),
	(9, '4--J_qNcEi8NyBq6hv18FCUA', '2h2vhgRX-b7lEaNct_FYyQ', 1, 1, 1795332357018522, 'paid', '', 15.00, 'EUR', '2036-11-19 07:25:58.044132+00', '2026-11-22 07:25:58.044132+00', 4, 'payment', '2026-11-22 07:26:01.180742+00', false),
	(10, '4-hBpDlfyXKnx0SSPypmi6jg', 'njDd-IGy6tddl-ch3NFUvw', 1, 1, 1795332357021138, 'sold_out', '', 15.00, 'EUR', NULL, '2026-11-22 07:26:03.618089+00', 4, 'settler', '2026-11-22 07:26:03.618089+00', false),
	(11, '6-35LBdzr7MltS5AZ9vp1Fxg', 'cHKI00B35VvL3NCWOaEYCQ', 1, 1, 1795332370770823, 'held', '', 15.00, 'EUR', '2036-11-19 07:26:11.760155+00', '2026-11-22 07:26:11.760155+00', 6, 'settler', '2026-11-22 07:26:11.760155+00', false),
	(12, '6-izS3jpinYFBk9iNqRNpvPw', 'swPfJH_9V30XQfmbUJq2Ow', 1, 1, 1795332370774479, 'held', '', 15.00, 'EUR', '2036-11-19 07:26:11.760155+00', '2026-11-22 07:26:11.760155+00', 6, 'settler', '2026-11-22 07:26:11.760155+00', false),
	(13, '6-GJ9kWz2qnPoYlVt7qJeDzg', 'YR3f-_eWZkZkTmvXm-rKUA', 1, 1, 1795332370777826, 'held', '', 15.00, 'EUR', '2036-11-19 07:26:11.760155+00', '2026-11-22 07:26:11.760155+00', 6, 'settler', '2026-11-22 07:26:11.760155+00', false);
INSERT INTO public.shop_orderevent (id, from_state, to_state, at, actor, reason, order_id) VALUES
	(1, 'queued', 'refused', '2026-11-22 07:25:23.159148+00', 'settler', 'dead_letter', 1),
	(2, 'queued', 'held', '2026-11-22 07:25:49.49425+00', 'settler', '', 2),
	(3, 'held', 'cancelled', '2026-11-22 07:25:52.694525+00', 'buyer', 'cancelled by the buyer', 2),
	(4, 'queued', 'held', '2026-11-22 07:25:57.996497+00', 'settler', '', 3),
	(5, 'queued', 'held', '2026-11-22 07:25:57.996497+00', 'settler', '', 4),
	(6, 'queued', 'held', '2026-11-22 07:25:58.025051+00', 'settler', '', 5),
	(7, 'queued', 'held', '2026-11-22 07:25:58.025051+00', 'settler', '', 6),
	(8, 'queued', 'held', '2026-11-22 07:25:58.025051+00', 'settler', '', 7),
	(9, 'queued', 'held', '2026-11-22 07:25:58.034366+00', 'settler', '', 8),
	(10, 'queued', 'held', '2026-11-22 07:25:58.044132+00', 'settler', '', 9),
	(11, 'held', 'paid', '2026-11-22 07:26:01.147103+00', 'payment', '', 5),
	(12, 'held', 'paid', '2026-11-22 07:26:01.180742+00', 'payment', '', 9),
	(13, 'queued', 'sold_out', '2026-11-22 07:26:03.618089+00', 'settler', '', 10),
	(14, 'queued', 'held', '2026-11-22 07:26:11.760155+00', 'settler', '', 11),
	(15, 'queued', 'held', '2026-11-22 07:26:11.760155+00', 'settler', '', 12),
	(16, 'queued', 'held', '2026-11-22 07:26:11.760155+00', 'settler', '', 13);
INSERT INTO public.shop_pastterms (id, version, until_us, price, currency, per_buyer_limit, hold_seconds, sale_id) VALUES
	(1, 1, 1795332374841583, 15.00, 'EUR', 1, 315360000, 7);
INSERT INTO public.shop_payment (id, provider, reference, amount, currency, state, reason, created_at, changed_at, order_id) VALUES
	(1, 'sandbox', '01fc174cfa5541feaf5b7ea708aa450a', 15.00, 'EUR', 'captured', '', '2026-11-22 07:26:01.12092+00', '2026-11-22 07:26:01.147247+00', 5),
	(2, 'sandbox', 'ea9f31554c46438ead7e8ee8d91ecc25', 15.00, 'EUR', 'captured', '', '2026-11-22 07:26:01.169474+00', '2026-11-22 07:26:01.18086+00', 9),
	(3, 'sandbox', '014d1e60792f4830969947bd8a9c0a63', 15.00, 'EUR', 'pending', '', '2026-11-22 07:26:01.204883+00', '2026-11-22 07:26:01.204883+00', 6);
INSERT INTO public.shop_paymentnotice (id, provider, event_id, kind, reference, result, received_at) VALUES
	(1, 'sandbox', 'evt_bce6330fe9fa748be5be1f1c', 'captured', '01fc174cfa5541feaf5b7ea708aa450a', 'paid', '2026-11-22 07:26:01.148118+00'),
	(2, 'sandbox', 'evt_a3c60268422661ab6f82bae8', 'captured', 'ea9f31554c46438ead7e8ee8d91ecc25', 'paid', '2026-11-22 07:26:01.181447+00');
INSERT INTO public.shop_staffact (id, act, actor, reason, detail, at, sale_id) VALUES
	(1, 'close', 'anna', '', '', '2026-11-22 07:26:02.178315+00', 4),
	(2, 'terms', 'anna', '', 'price 15.00 → 20.00', '2026-11-22 07:26:14.827675+00', 7),
	(3, 'pause', 'anna', 'stocktaking', '', '2026-11-22 07:26:17.1428+00', 8);
SELECT pg_catalog.setval('public.inventory_stock_id_seq', 8, true);
SELECT pg_catalog.setval('public.inventory_stockmovement_id_seq', 20, true);
SELECT pg_catalog.setval('public.sandbox_charge_id_seq', 3, true);
SELECT pg_catalog.setval('public.sandbox_event_id_seq', 2, true);
SELECT pg_catalog.setval('public.shop_order_id_seq', 13, true);
SELECT pg_catalog.setval('public.shop_orderevent_id_seq', 16, true);
SELECT pg_catalog.setval('public.shop_pastterms_id_seq', 1, true);
SELECT pg_catalog.setval('public.shop_payment_id_seq', 3, true);
SELECT pg_catalog.setval('public.shop_paymentnotice_id_seq', 2, true);
SELECT pg_catalog.setval('public.shop_product_id_seq', 8, true);
SELECT pg_catalog.setval('public.shop_sale_id_seq', 8, true);
SELECT pg_catalog.setval('public.shop_staffact_id_seq', 3, true);
