"""Group assignors: which member of a group reads which partitions, as pure functions over plain data.

None is here yet: group membership is a later release, and a consumer that is given ``assignors`` says so.
"""
