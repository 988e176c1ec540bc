"""Figures, the rows that they make, and the table."""

import statistics

import record


class Figure:
    """A value, or the median of some."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def median(cls, results, path):
        """The median over results of the value at a path of keys."""
        values = []
        for result in results:
            for key in path:
                result = result[key]
            values.append(result)
        return cls(statistics.median(values))

    def __str__(self):
        value = self.value
        digits = 3 if abs(value) < 1 else 2 if value < 10 else 1 if value < 100 else 0
        return f"{value:,.{digits}f}"


class Row:
    """A figure, its limit, and its goal: an absolute bound, or one by the limit."""

    def __init__(self, name, figure, limit=None, limit_name="", most=None, least_of_limit=None,
                 most_of_limit=None, most_over_limit=None):
        self.name, self.figure = name, figure
        self.limit, self.limit_name = limit, limit_name
        self.most, self.least_of_limit = most, least_of_limit
        self.most_of_limit, self.most_over_limit = most_of_limit, most_over_limit

    def reached(self):
        """True if the figure reaches its goal; None without a goal."""
        value = self.figure.value
        if self.most is not None:
            return value <= self.most
        if self.most_of_limit is not None:
            return value <= self.most_of_limit * self.limit.value
        if self.most_over_limit is not None:
            return value <= self.most_over_limit + self.limit.value
        if self.least_of_limit is not None:
            return value >= self.least_of_limit * self.limit.value
        return None

    def goal(self):
        """The goal as text."""
        if self.most is not None:
            return f"≤ {self.most:g}"
        if self.most_of_limit is not None:
            return f"≤ {self.most_of_limit:g} × limit"
        if self.most_over_limit is not None:
            return f"≤ limit + {self.most_over_limit:g}"
        return f"≥ {self.least_of_limit:g} × limit" if self.least_of_limit is not None else ""

    def as_json(self):
        """The row for a record."""
        limit = self.limit.value if self.limit else None
        return {"name": self.name, "value": self.figure.value, "limit": limit, "limit_name": self.limit_name,
                "ratio": self.figure.value / limit if limit else None, "goal": self.goal(), "reached": self.reached()}

    def cells(self):
        """The row as text."""
        limit = f"{self.limit} ({self.limit_name})" if self.limit else ""
        has_ratio = self.limit and self.limit.value
        ratio = f"{self.figure.value / self.limit.value:.2f}" if has_ratio else ""
        verdict = {None: "", True: "reached", False: "MISSED"}[self.reached()]
        return [self.name, str(self.figure), limit, ratio, self.goal(), verdict]


def print_table(rows, record_path=None):
    """Prints a Markdown table, and the number of missed goals; writes the rows to a file, if one is named."""
    record.save(record_path, [row.as_json() for row in rows])
    heads = ["", "Martlet", "limit here", "ratio", "goal", ""]
    table = [heads, *(row.cells() for row in rows)]
    widths = [max(3, *(len(row[column]) for row in table)) for column in range(len(heads))]
    for number, row in enumerate(table):
        cells = [cell.rjust(width) if column == 1 else cell.ljust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        print(f"| {' | '.join(cells)} |")
        if number == 0:
            print(f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    missed = sum(row.reached() is False for row in rows)
    print(f"\nbench: {len(rows)} figures, {missed} goals missed")
