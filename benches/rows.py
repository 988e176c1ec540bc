"""Figures, the rows that they make, and how the table looks."""

import statistics


class Figure:
    """A value, or the median of some."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def median(cls, results, path):
        """The median over results of what lies at a path of keys."""
        values = []
        for result in results:
            for key in path:
                result = result[key]
            values.append(result)
        return cls(statistics.median(values))

    def __str__(self):
        value = self.value
        digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
        return f"{value:,.{digits}f}"


class Row:
    """A figure, what limits it, and what it should be."""

    def __init__(self, name, figure, limit=None, limit_name="", most=None, least_of_limit=None):
        self.name, self.figure = name, figure
        self.limit, self.limit_name = limit, limit_name
        self.most, self.least_of_limit = most, least_of_limit

    def reached(self):
        """Whether the figure is as it should be; None where nothing is asked."""
        if self.most is not None:
            return self.figure.value <= self.most
        if self.least_of_limit is not None:
            return self.figure.value >= self.least_of_limit * self.limit.value
        return None

    def cells(self):
        """The row as text."""
        goal = ""
        if self.most is not None:
            goal = f"≤ {self.most:g}"
        elif self.least_of_limit is not None:
            goal = f"≥ {self.least_of_limit:g} × limit"
        limit = f"{self.limit} ({self.limit_name})" if self.limit else ""
        ratio = f"{self.figure.value / self.limit.value:.2f}" if self.limit else ""
        verdict = {None: "", True: "reached", False: "MISSED"}[self.reached()]
        return [self.name, str(self.figure), limit, ratio, goal, verdict]


def print_table(rows):
    """Prints the table, and how many goals are missed."""
    heads = ["", "Martlet", "limit here", "ratio", "goal", ""]
    table = [heads, *(row.cells() for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    for number, row in enumerate(table):
        name, figure, *rest = (cell.ljust(width) for cell, width in zip(row, widths))
        print(" │ ".join([name, row[1].rjust(widths[1]), *rest]).rstrip())
        if number == 0:
            print("─┼─".join("─" * width for width in widths))
    missed = sum(row.reached() is False for row in rows)
    print(f"bench: {len(rows)} figures, {missed} goals missed")
