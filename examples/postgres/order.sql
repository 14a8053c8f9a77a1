-- The order and its event, in one transaction: both, or neither.
BEGIN;
INSERT INTO orders (customer, product) VALUES (:'customer', :'product') RETURNING id \gset
SELECT halley.publish(:'product', jsonb_build_object('order', :id, 'customer', :'customer'), 'order-' || :id) \g /dev/null
COMMIT;
SELECT :id;
