"""Drive the course in a browser: open a notebook by its link, type into cells, run them, read what they put out.

A cell is named by its id, which for an answer is the exercise's, or by its place. Outputs are read from the notebook's
model, as Jupyter stores them, so that what is scrolled out of sight counts too.
"""

from urllib.parse import quote

#: Milliseconds that a kernel may take to start, or a notebook to run, on a machine that does much else.
PATIENCE = 300_000

READY = """path => {
    const context = window.jupyterapp?.shell.currentWidget?.context;
    const session = context?.sessionContext;
    return !!(context?.isReady && context.path === path && session?.isReady && session.session?.kernel);
}"""
#: Notebook commands promise to end with the last cell; the page keeps what became of the promise in `ran`.
RUN = """command => {
    window.ran = null;
    jupyterapp.commands.execute(command).then(() => { window.ran = 'done'; }, error => { window.ran = String(error); });
}"""
FIND = """cell => {
    const {widgets} = jupyterapp.shell.currentWidget.content;
    return typeof cell === 'number' ? cell : widgets.findIndex(widget => widget.model.id === cell);
}"""
CELLS = """() => jupyterapp.shell.currentWidget.content.widgets.map(({model}) => ({
    id: model.id,
    type: model.type,
    source: model.sharedModel.getSource(),
    outputs: model.type === 'code' ? model.outputs.toJSON() : [],
}))"""
SELECT = """async place => {
    const {content} = jupyterapp.shell.currentWidget;
    content.activeCellIndex = place;
    await content.scrollToItem(place);
}"""
FOCUS = "() => jupyterapp.shell.currentWidget.content.activeCell.editor.focus()"
EXECUTE = """async code => {
    const {kernel} = jupyterapp.shell.currentWidget.context.sessionContext.session;
    const outputs = [], future = kernel.requestExecute({code});
    future.onIOPub = ({header, content}) => {
        if (['stream', 'display_data', 'execute_result', 'error'].includes(header.msg_type))
            outputs.push({output_type: header.msg_type, ...content});
    };
    await future.done;
    return outputs;
}"""


def open_notebook(page, address, path):
    """Follow the link to the notebook at ``path`` and wait for its kernel's session; the cells may be run at once."""
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}lite/lab/index.html?path={quote(path)}")
    page.wait_for_function(READY, arg=path)


#: Each open notebook takes some hundred megabytes, and slows down the page.
CLOSE = """async () => {
    const widget = jupyterapp.shell.currentWidget;
    await widget.context.sessionContext.shutdown();
    widget.dispose();
}"""


def open_next(page, path):
    """Close the notebook that the page shows, unsaved, and open another, as from the file browser."""
    page.evaluate(CLOSE)
    page.evaluate("path => { jupyterapp.commands.execute('docmanager:open', {path}); }", path)
    page.wait_for_function(READY, arg=path)


def allow(page, seconds=PATIENCE // 1000):
    """Let each cell of the open notebook run for ``seconds``, as a learner may who has a slow machine."""
    assert execute(page, f"from ledger import allow; allow({seconds})") == []


def cells(page):
    """Every cell of the open notebook: id, type, source, outputs."""
    return page.evaluate(CELLS)


def place(page, cell):
    """Where the cell stands in the open notebook; an AssertionError where there is none of that id."""
    found = page.evaluate(FIND, cell)
    assert found >= 0, f"there is no cell {cell!r}"
    return found


def run_all(page):
    """Run the open notebook from top to bottom; its cells with their outputs."""
    finish(page, "notebook:run-all-cells")
    return cells(page)


def show(page, cell):
    """Select a cell and bring it into sight."""
    page.evaluate(SELECT, place(page, cell))


def run_cell(page, cell):
    """Run one cell; its outputs."""
    show(page, cell)
    finish(page, "notebook:run-cell")
    return cell_output(page, cell)


def finish(page, command):
    """Carry out a command of the notebook and wait for its end."""
    page.evaluate(RUN, command)
    page.wait_for_function("() => window.ran")
    assert page.evaluate("() => window.ran") == "done"


def cell_output(page, cell):
    """The outputs of one cell."""
    return cells(page)[place(page, cell)]["outputs"]


def type_into_cell(page, cell, text):
    """Put ``text`` in the place of a cell's text, through its editor."""
    show(page, cell)
    page.evaluate(FOCUS)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    assert cells(page)[place(page, cell)]["source"] == text


def execute(page, code):
    """Run code in the open notebook's kernel, without a cell; its outputs."""
    return page.evaluate(EXECUTE, code)


def said(outputs):
    """What outputs say as text; an error is its name and message."""
    parts = []
    for output in outputs:
        if output["output_type"] == "stream":
            parts.append("".join(output["text"]))
        elif output["output_type"] == "error":
            parts.append(f"{output['ename']}: {output['evalue']}\n")
        else:
            parts.append("".join(output["data"].get("text/plain", "")) + "\n")
    return "".join(parts)


def errors(outputs):
    """The errors among outputs."""
    return [output for output in outputs if output["output_type"] == "error"]
