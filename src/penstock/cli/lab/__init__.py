"""`penstock lab`: runs scenarios and shows what became of them, and the lab's producer and consumer by themselves."""
