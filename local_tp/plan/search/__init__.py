"""The search over devices, orders, splits and shares: from an `Ask` to the best `Answer`."""
