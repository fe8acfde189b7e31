"""What producer, consumer and admin share: the core, the driver of its managers, interceptors."""
