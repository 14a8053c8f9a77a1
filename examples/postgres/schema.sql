-- What a shop has anyway: customers who follow products, and orders.
CREATE TABLE follows (
    customer text,
    product  text,
    PRIMARY KEY (customer, product)
);
CREATE TABLE orders (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    product  text NOT NULL CHECK (product <> '')
);
INSERT INTO follows VALUES ('ann', 'tea'), ('ann', 'honey'), ('bob', 'tea');
