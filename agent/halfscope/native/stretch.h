/* A stretch of calm steps: what hooks gather of a training in which nothing is out of the ordinary, and the rows of it.
 *
 * A part of helper.c. What is not certainly calm is refused, with nothing changed: each function returns False, and
 * whoever called it takes the stretch back (instrument/stretch.py) and goes the ordinary way, which gives the same rows.
 * Invariants: no function raises but for wrong arguments of our own; no tensor is kept alive, and nothing is called
 * that could call back into a stretch, but while the interpreter is handed over for a norm: after that all is asked
 * again.
 */
#include <time.h>

enum {
    ROWS = 64,      /* closed rows that wait, with the open one behind them */
    LOGGED = 64,    /* numbers of `run.log` in a row */
    NAME_SETS = 8,  /* calls of `run.log` with the same names */
    BATCHES = 16    /* of one step that are kept in sight */
};
#define DUE_NS 20000000 /* after which closed rows are told */

typedef enum { NORM, STEP_S, COST_SHARE, LOSS, BETWEEN_S, NUM_STEPS, SAMPLES_PER_S, TOKENS_PER_S, RATE, SERIES } Column;
typedef enum { NOTHING, INFERRED, DECLARED } Source; /* of samples */

typedef struct {
    int64_t step, completed_us, completed_ns, idle_ns;
    double norm, rate, loss, samples, tokens;
    int64_t inferred;
    int has_norm, has_loss, has_samples, has_tokens, is_complete;
    unsigned filled; /* of `columns`, by bits */
    int num_logged;
    double columns[SERIES];
    int sids[LOGGED];
    double logged[LOGGED];
} StepRow;

typedef struct {
    PyObject *names; /* a tuple; NULL: none */
    int sids[LOGGED];
} NameSet;

typedef struct {
    PyObject_HEAD
    char is_on, backward; /* the latter: a backward pass ran since the hooks were last called */
    char infers, holds, times_idleness, is_counted;
    unsigned long thread;
    long long own_ns, base_ns; /* time spent in here, and in all of the agent before */
    int64_t stop_step, before_ns, before_own_ns, before_idle_ns, told_ns, num_steps, pending;
    double overdue_ns, rate, samples, tokens;
    Source source;
    int has_tokens;
    int sids[SERIES]; /* -1: not declared */
    int num_rows;     /* closed ones; the open one is behind them */
    StepRow *rows;
    NameSet sets[NAME_SETS];
    int num_sets, last_set;
    PyObject *batches[BATCHES], *last[BATCHES];
    int num_batches, num_last;
} Stretch;

static PyObject *call_grad_enabled, *call_leading_size, *call_hold, *text_param_groups, *text_grad_scale, *text_lr;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static StepRow *open_row(Stretch *self) { return &self->rows[self->num_rows]; }

static void begin_row(StepRow *row, int64_t step) {
    row->step = step;
    row->idle_ns = row->inferred = 0;
    row->has_norm = row->has_loss = row->has_samples = row->has_tokens = row->is_complete = row->num_logged = 0;
}

static void forget_batches(PyObject **batches, int *count) {
    while (*count) Py_DECREF(batches[--*count]);
}

/* A number that the host knows: a float, a whole number, a tensor of one element. */
static int number(PyObject *value, double *found) {
    Span span;
    if (PyFloat_Check(value) || PyLong_Check(value)) {
        *found = PyFloat_AsDouble(value);
        if (*found != -1.0 || !PyErr_Occurred()) return 1;
        PyErr_Clear();
        return 0;
    }
    if (!span_of_tensor(value, &span) || span.count != 1) return 0;
    if (span.kind == F64) {
        memcpy(found, span.data, 8);
    } else {
        uint32_t bits;
        float single;
        load_bits(&span, 0, 1, &bits);
        memcpy(&single, &bits, 4);
        *found = (double)single;
    }
    return 1;
}

/* ---- closing a step ------------------------------------------------------------------------------------------- */

static void put(StepRow *row, Column column, double value) {
    row->columns[column] = value;
    row->filled |= 1u << column;
}

/* Fills the columns of the open row, which is complete; 0 where it is not like those before. */
static int fill_columns(Stretch *self, StepRow *row) {
    int64_t took_ns = row->completed_ns - self->before_ns;
    Source source = row->has_samples ? DECLARED : row->inferred ? INFERRED : NOTHING;
    double samples = source == DECLARED ? row->samples : (double)row->inferred, step_s = (double)took_ns / 1e9;
    if (took_ns <= 0 || source != self->source || (source != NOTHING && samples != self->samples)) return 0;
    if (row->has_tokens != self->has_tokens || (row->has_tokens && row->tokens != self->tokens)) return 0;
    row->filled = 0;
    put(row, NORM, row->norm);
    put(row, STEP_S, step_s);
    put(row, COST_SHARE, (double)(self->base_ns + self->own_ns - self->before_own_ns) / (double)took_ns);
    if (row->has_loss) put(row, LOSS, row->loss);
    if (self->before_idle_ns > 0) put(row, BETWEEN_S, (double)self->before_idle_ns / 1e9);
    if (self->sids[NUM_STEPS] >= 0) put(row, NUM_STEPS, (double)(self->num_steps + 1));
    if (source != NOTHING) put(row, SAMPLES_PER_S, samples / step_s);
    if (row->has_tokens) put(row, TOKENS_PER_S, row->tokens / step_s);
    if (row->rate != self->rate) put(row, RATE, row->rate);
    for (int column = 0; column < SERIES; column++)
        if (row->filled >> column & 1 && self->sids[column] < 0) return 0;
    return 1;
}

/* The work of another step begins, if some was done since the last was complete; 0 where only the ordinary way can. */
static int advance(Stretch *self) {
    StepRow *row = open_row(self);
    if (!self->backward) return 1;
    if (row->is_complete) {
        if (self->num_rows == ROWS - 1 || !fill_columns(self, row)) return 0;
        self->before_ns = row->completed_ns;
        self->before_own_ns = self->base_ns + self->own_ns;
        self->before_idle_ns = row->idle_ns;
        self->rate = row->rate;
        self->num_steps++;
        self->num_rows++;
        begin_row(open_row(self), row->step + 1);
    } else if (row->has_norm) {
        return 0; /* a backward pass within the optimizer's step */
    }
    self->backward = self->is_counted = 0;
    return 1;
}

static int is_due(const Stretch *self) {
    return self->num_rows == ROWS - 1 || (self->num_rows && self->before_ns - self->told_ns >= DUE_NS);
}

/* ---- what hooks call: True: done; False: only the ordinary way can; None: done, and `take` is to be called -------- */

static PyObject *forward_now(Stretch *self, PyObject *args, PyObject *kwargs) {
    PyObject *enabled = PyObject_CallNoArgs(call_grad_enabled);
    Py_XDECREF(enabled);
    if (enabled == NULL) return NULL;
    if (enabled != Py_True) Py_RETURN_TRUE;
    if (!advance(self)) Py_RETURN_FALSE;
    StepRow *row = open_row(self);
    if (row->step + row->is_complete >= self->stop_step) Py_RETURN_FALSE;
    if (row->is_complete && self->times_idleness && !row->idle_ns) row->idle_ns = now_ns() - row->completed_ns;
    DLTensor tensor;
    PyObject *only = PyTuple_Size(args) == 1 && PyDict_Size(kwargs) == 0 ? PyTuple_GetItem(args, 0) : NULL;
    if (only != NULL && (PyObject *)Py_TYPE(only) != tensor_type) only = NULL;
    if (self->infers && !self->is_counted) {
        if (only != NULL && exchange->borrow(only, &tensor) == 0) {
            self->pending += tensor.ndim ? tensor.shape[0] : 0;
        } else {
            PyErr_Clear();
            PyObject *size = PyObject_CallFunctionObjArgs(call_leading_size, args, kwargs, NULL);
            if (size == NULL) return NULL;
            if (size != Py_None) self->pending += PyLong_AsLongLong(size);
            Py_DECREF(size);
        }
        self->is_counted = 1;
    }
    if (self->holds && self->num_batches < BATCHES) {
        PyObject *held = only != NULL ? PyWeakref_NewRef(only, NULL)
                                      : PyObject_CallFunctionObjArgs(call_hold, args, kwargs, NULL);
        if (held == NULL) return NULL;
        self->batches[self->num_batches++] = held;
    }
    Py_RETURN_TRUE;
}

/* The gradients of an optimizer that is called without a closure, and unscaled: their norm, if it is finite. */
static int calm_norm(PyObject *optimizer, double *norm) {
    PyObject *own = PyObject_GenericGetDict(optimizer, NULL), *groups, *scale, *sum = NULL;
    if (own == NULL) return 0;
    groups = PyDict_GetItemWithError(own, text_param_groups);
    scale = PyDict_GetItemWithError(own, text_grad_scale);
    if (groups != NULL && (scale == NULL || scale == Py_None)) {
        Py_INCREF(groups);
        sum = gradient_squares(NULL, groups);
        Py_DECREF(groups);
    }
    Py_DECREF(own);
    double squares = sum == NULL || sum == Py_None ? 0.0 : PyFloat_AsDouble(sum);
    Py_XDECREF(sum);
    *norm = sqrt(squares);
    return squares >= 1e-280 && squares < (double)INFINITY; /* gradients.SMALLEST_TRUSTED_SQUARES */
}

static int may_begin(Stretch *self) {
    StepRow *row = open_row(self);
    if (row->is_complete ? !self->backward : row->has_norm) return 0;
    return row->step + row->is_complete < self->stop_step && PyThread_get_thread_ident() == self->thread;
}

static PyObject *begin_now(Stretch *self, PyObject *optimizer, PyObject *args, PyObject *kwargs) {
    double norm;
    if (PyDict_Size(kwargs) != 0 || PyTuple_Size(args) != 1 || !may_begin(self)) Py_RETURN_FALSE;
    if (!calm_norm(optimizer, &norm) || !self->is_on || !may_begin(self)) Py_RETURN_FALSE;
    if (!advance(self)) Py_RETURN_FALSE;
    open_row(self)->norm = norm;
    open_row(self)->has_norm = 1;
    if (is_due(self)) Py_RETURN_NONE;
    Py_RETURN_TRUE;
}

/* The learning rate of the only group; 0 where it is not that simple. */
static int only_rate(PyObject *optimizer, double *found) {
    PyObject *own = PyObject_GenericGetDict(optimizer, NULL), *groups, *group, *rate = NULL;
    if (own == NULL) return 0;
    groups = PyDict_GetItemWithError(own, text_param_groups);
    if (groups != NULL && PyList_Check(groups) && PyList_Size(groups) == 1) {
        group = PyList_GetItem(groups, 0);
        rate = PyDict_Check(group) ? PyDict_GetItemWithError(group, text_lr) : NULL;
    }
    int is_float = rate != NULL && PyFloat_CheckExact(rate);
    if (is_float) *found = PyFloat_AsDouble(rate);
    Py_DECREF(own);
    return is_float;
}

static PyObject *end_now(Stretch *self, PyObject *optimizer) {
    StepRow *row = open_row(self);
    double rate;
    if (!row->has_norm || row->is_complete || self->backward || !only_rate(optimizer, &rate)) Py_RETURN_FALSE;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    row->rate = rate;
    row->completed_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    row->completed_ns = now_ns();
    row->is_complete = 1;
    row->inferred = self->pending;
    self->pending = self->is_counted = 0;
    forget_batches(self->last, &self->num_last);
    memcpy(self->last, self->batches, sizeof self->batches);
    self->num_last = self->num_batches;
    self->num_batches = 0;
    if ((double)row->completed_ns >= self->overdue_ns) self->stop_step = INT64_MIN;
    Py_RETURN_TRUE;
}

static PyObject *annotate_now(Stretch *self, PyObject *const *args) {
    double loss = 0.0, samples = 0.0, tokens = 0.0;
    if (args[0] != Py_None && (!number(args[0], &loss) || !isfinite(loss))) Py_RETURN_FALSE;
    if (args[1] != Py_None && !number(args[1], &samples)) Py_RETURN_FALSE;
    if (args[2] != Py_None && !number(args[2], &tokens)) Py_RETURN_FALSE;
    if (!advance(self)) Py_RETURN_FALSE;
    StepRow *row = open_row(self);
    if (args[0] != Py_None) row->loss = loss, row->has_loss = 1;
    if (args[1] != Py_None) row->samples = samples + (row->has_samples ? row->samples : 0.0), row->has_samples = 1;
    if (args[2] != Py_None) row->tokens = tokens + (row->has_tokens ? row->tokens : 0.0), row->has_tokens = 1;
    Py_RETURN_TRUE;
}

/* Whether a dict has the names of a set, in their order; its numbers. */
static int are_known(const NameSet *set, PyObject *values, double *found) {
    PyObject *name, *value;
    Py_ssize_t at = 0, place = 0;
    if (PyDict_Size(values) != PyTuple_Size(set->names)) return 0;
    while (PyDict_Next(values, &place, &name, &value)) {
        PyObject *known = PyTuple_GetItem(set->names, at);
        if (name != known && (!PyUnicode_CheckExact(name) || PyUnicode_Compare(name, known) != 0)) return 0;
        if (!number(value, &found[at++])) return 0;
    }
    return 1;
}

static PyObject *log_now(Stretch *self, PyObject *values) {
    double found[LOGGED];
    int which = self->last_set, tried = 0;
    if (!PyDict_CheckExact(values)) Py_RETURN_FALSE;
    for (; tried < self->num_sets; tried++, which = (which + 1) % self->num_sets)
        if (are_known(&self->sets[which], values, found)) break;
    if (tried == self->num_sets) Py_RETURN_FALSE;
    int count = (int)PyDict_Size(values);
    if (open_row(self)->num_logged + count > LOGGED || !advance(self)) Py_RETURN_FALSE;
    StepRow *row = open_row(self);
    const int *sids = self->sets[which].sids;
    int held = row->num_logged;
    self->last_set = which;
    for (int at = 0; at < count; at++) {
        int place = 0;
        while (place < held && row->sids[place] != sids[at]) place++;
        if (place == held) place = row->num_logged++;
        row->sids[place] = sids[at];
        row->logged[place] = found[at];
    }
    Py_RETURN_TRUE;
}

/* What a function of the stretch returns, with the time it took; whatever failed is the ordinary way's to find. */
static PyObject *timed(Stretch *self, int64_t began_ns, PyObject *done) {
    if (done == NULL) {
        PyErr_Clear();
        done = Py_False;
        Py_INCREF(done);
    }
    self->own_ns += now_ns() - began_ns;
    return done;
}

static int are(Py_ssize_t num_args, Py_ssize_t expected) {
    if (num_args == expected) return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments; expected %zd", num_args, expected);
    return 0;
}

static PyObject *stretch_forward(Stretch *self, PyObject *const *args, Py_ssize_t num_args) {
    if (!are(num_args, 3)) return NULL;
    if (!self->is_on) Py_RETURN_FALSE;
    int64_t began_ns = now_ns();
    return timed(self, began_ns, forward_now(self, args[1], args[2]));
}

static PyObject *stretch_begin(Stretch *self, PyObject *const *args, Py_ssize_t num_args) {
    if (!are(num_args, 3)) return NULL;
    if (!self->is_on) Py_RETURN_FALSE;
    int64_t began_ns = now_ns();
    return timed(self, began_ns, begin_now(self, args[0], args[1], args[2]));
}

static PyObject *stretch_end(Stretch *self, PyObject *const *args, Py_ssize_t num_args) {
    if (!are(num_args, 3)) return NULL;
    if (!self->is_on) Py_RETURN_FALSE;
    int64_t began_ns = now_ns();
    return timed(self, began_ns, end_now(self, args[0]));
}

static PyObject *stretch_annotate(Stretch *self, PyObject *const *args, Py_ssize_t num_args) {
    if (!are(num_args, 3)) return NULL;
    if (!self->is_on) Py_RETURN_FALSE;
    int64_t began_ns = now_ns();
    return timed(self, began_ns, annotate_now(self, args));
}

static PyObject *stretch_log(Stretch *self, PyObject *values) {
    if (!self->is_on) Py_RETURN_FALSE;
    int64_t began_ns = now_ns();
    return timed(self, began_ns, log_now(self, values));
}

/* ---- what the agent calls between --------------------------------------------------------------------------------- */

PyDoc_STRVAR(learn_doc, "learn(names, sids): tuples of names that a call of `run.log` had, and of their series");

static PyObject *stretch_learn(Stretch *self, PyObject *const *args, Py_ssize_t num_args) {
    if (!are(num_args, 2)) return NULL;
    Py_ssize_t count = PyTuple_Size(args[0]);
    if (count < 0 || PyTuple_Size(args[1]) != count) {
        PyErr_SetString(PyExc_TypeError, "expected two tuples of one length");
        return NULL;
    }
    if (count > LOGGED || self->num_sets == NAME_SETS) Py_RETURN_FALSE;
    NameSet *set = &self->sets[self->num_sets];
    for (Py_ssize_t at = 0; at < count; at++) {
        set->sids[at] = (int)PyLong_AsLong(PyTuple_GetItem(args[1], at));
        if (PyErr_Occurred() || !PyUnicode_CheckExact(PyTuple_GetItem(args[0], at))) {
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
    }
    Py_INCREF(args[0]);
    set->names = args[0];
    self->num_sets++;
    Py_RETURN_TRUE;
}

static int take_batches(PyObject *held, PyObject **batches, int *count) {
    Py_ssize_t size = PyList_Size(held);
    if (size < 0 || size > BATCHES) return 0;
    forget_batches(batches, count);
    for (; *count < size; ++*count) {
        batches[*count] = PyList_GetItem(held, *count);
        Py_INCREF(batches[*count]);
    }
    return 1;
}

PyDoc_STRVAR(start_doc,
             "start(limits, before, known, flags, batches, row)\n\n"
             "The stretch begins in the step whose norm was just read.\n\n"
             "limits: (step, first step that is not calm, time from which none is)\n"
             "before: (completed_ns, own_ns, idle_ns) of the step before, what watching cost until now, applied steps\n"
             "known: (learning rate, 0, 1 or 2 for samples unknown, inferred or declared, samples, tokens or None, series)\n"
             "flags: infers samples, holds batches, times idleness, has counted the batch, samples counted\n"
             "batches: lists of this step's and of the last one's\n"
             "row: (norm, loss, samples, tokens), of the latter None for those that nobody told");

static PyObject *stretch_start(Stretch *self, PyObject *args) {
    long long step, stop, before_ns, before_own_ns, before_idle_ns, base_ns, num_steps, pending;
    double overdue_ns, rate, samples, norm;
    int source, infers, holds, idles, counted;
    PyObject *tokens, *sids, *batches, *last, *said[3];
    if (!PyArg_ParseTuple(args, "(LLd)(LLLLL)(didOO!)(ppppL)(O!O!)(dOOO)", &step, &stop, &overdue_ns, &before_ns,
                          &before_own_ns, &before_idle_ns, &base_ns, &num_steps, &rate, &source, &samples, &tokens,
                          &PyTuple_Type, &sids, &infers, &holds, &idles, &counted, &pending, &PyList_Type, &batches,
                          &PyList_Type, &last, &norm, &said[0], &said[1], &said[2]))
        return NULL;
    StepRow *row = &self->rows[0];
    begin_row(row, step);
    int is_taken = !self->is_on && !self->num_rows && PyTuple_Size(sids) == SERIES;
    for (int column = 0; is_taken && column < SERIES; column++)
        self->sids[column] = (int)PyLong_AsLong(PyTuple_GetItem(sids, column));
    is_taken = is_taken && take_batches(batches, self->batches, &self->num_batches) &&
               take_batches(last, self->last, &self->num_last);
    self->has_tokens = tokens != Py_None;
    is_taken = is_taken && (!self->has_tokens || number(tokens, &self->tokens));
    row->has_loss = said[0] != Py_None, row->has_samples = said[1] != Py_None, row->has_tokens = said[2] != Py_None;
    is_taken = is_taken && (!row->has_loss || number(said[0], &row->loss)) &&
               (!row->has_samples || number(said[1], &row->samples)) &&
               (!row->has_tokens || number(said[2], &row->tokens));
    if (PyErr_Occurred()) return NULL;
    if (!is_taken) Py_RETURN_FALSE;
    row->norm = norm, row->has_norm = 1;
    self->stop_step = stop, self->overdue_ns = overdue_ns;
    self->before_ns = self->told_ns = before_ns, self->before_own_ns = before_own_ns;
    self->before_idle_ns = before_idle_ns, self->base_ns = base_ns, self->num_steps = num_steps;
    self->rate = rate, self->source = (Source)source, self->samples = samples;
    self->infers = (char)infers, self->holds = (char)holds, self->times_idleness = (char)idles;
    self->is_counted = (char)counted, self->pending = pending;
    self->thread = PyThread_get_thread_ident();
    self->backward = 0;
    self->is_on = 1;
    Py_RETURN_TRUE;
}

static PyObject *bytes_of(const StepRow *rows, int count, size_t offset) {
    char copied[ROWS * 8];
    for (int at = 0; at < count; at++) memcpy(copied + 8 * at, (const char *)&rows[at] + offset, 8);
    return PyBytes_FromStringAndSize(copied, 8 * count);
}

static int are_alike(const StepRow *one, const StepRow *other) {
    return one->filled == other->filled && one->num_logged == other->num_logged &&
           memcmp(one->sids, other->sids, (size_t)one->num_logged * sizeof one->sids[0]) == 0;
}

/* Appends a column, or a number of a series, to a list; takes the reference. */
static int appended(PyObject *list, PyObject *item) {
    int is_done = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return is_done;
}

PyDoc_STRVAR(take_doc,
             "take() -> (time when the last of them was complete, steps, times, series, their columns), or None\n\n"
             "The oldest of the closed rows, as far as they are of the same series; columns are bytes of int64 or double\n"
             "as this machine has them. None: there are no more.");

static PyObject *stretch_take(Stretch *self, PyObject *unused) {
    if (!self->num_rows) Py_RETURN_NONE;
    const StepRow *first = self->rows;
    int count = 1, is_done = 1;
    while (count < self->num_rows && are_alike(first, &first[count])) count++;
    PyObject *sids = PyList_New(0), *columns = PyList_New(0), *result = NULL;
    for (int column = 0; column < SERIES && is_done; column++) {
        if (!(first->filled >> column & 1)) continue;
        size_t offset = offsetof(StepRow, columns) + (size_t)column * sizeof(double);
        is_done = appended(sids, PyLong_FromLong(self->sids[column])) && appended(columns, bytes_of(first, count, offset));
    }
    for (int at = 0; at < first->num_logged && is_done; at++) {
        size_t offset = offsetof(StepRow, logged) + (size_t)at * sizeof(double);
        is_done = appended(sids, PyLong_FromLong(first->sids[at])) && appended(columns, bytes_of(first, count, offset));
    }
    if (is_done)
        result = Py_BuildValue("(LNNOO)", (long long)first[count - 1].completed_ns,
                               bytes_of(first, count, offsetof(StepRow, step)),
                               bytes_of(first, count, offsetof(StepRow, completed_us)), sids, columns);
    Py_XDECREF(sids);
    Py_XDECREF(columns);
    self->told_ns = first[count - 1].completed_ns;
    self->num_rows -= count;
    memmove(self->rows, self->rows + count, (size_t)(self->num_rows + 1) * sizeof *self->rows);
    return result;
}

static PyObject *float_or_none(int has, double value) {
    if (has) return PyFloat_FromDouble(value);
    Py_RETURN_NONE;
}

static PyObject *list_of(PyObject **batches, int *count) {
    PyObject *list = PyList_New(0);
    for (int at = 0; list != NULL && at < *count; at++)
        if (PyList_Append(list, batches[at]) != 0) Py_CLEAR(list);
    forget_batches(batches, count);
    return list;
}

PyDoc_STRVAR(stop_doc,
             "stop() -> (clock, before, known, pending, batches, row)\n\n"
             "The stretch is over; all but the open row was taken before.\n\n"
             "clock: (step, whether it is complete, whether a backward pass ran after that)\n"
             "before: as given to `start`, of the last closed row, but for (time spent in here) at its end\n"
             "known: (learning rate, as last written)\n"
             "pending: (samples counted, whether the batch was)\n"
             "row: (norm, learning rate, loss, samples, tokens, samples inferred, idle_ns, completed_ns, completed_us,\n"
             "numbers by series); None for what is not known");

static PyObject *stretch_stop(Stretch *self, PyObject *unused) {
    StepRow *row = open_row(self);
    PyObject *logged = PyDict_New();
    for (int at = 0; logged != NULL && at < row->num_logged; at++) {
        PyObject *sid = PyLong_FromLong(row->sids[at]), *value = PyFloat_FromDouble(row->logged[at]);
        if (sid == NULL || value == NULL || PyDict_SetItem(logged, sid, value) != 0) Py_CLEAR(logged);
        Py_XDECREF(sid);
        Py_XDECREF(value);
    }
    long long own_ns = self->own_ns;
    self->own_ns = self->base_ns = 0;
    self->is_on = 0;
    self->num_rows = 0;
    return Py_BuildValue(
        "(LNN)(LLLL)d(LN)(NN)(NNNNNLLLLN)", (long long)row->step, PyBool_FromLong(row->is_complete),
        PyBool_FromLong(self->backward), (long long)self->before_ns, (long long)self->before_own_ns,
        (long long)self->before_idle_ns, own_ns, self->rate, (long long)self->pending, PyBool_FromLong(self->is_counted),
        list_of(self->batches, &self->num_batches), list_of(self->last, &self->num_last),
        float_or_none(row->has_norm, row->norm), float_or_none(row->is_complete, row->rate),
        float_or_none(row->has_loss, row->loss), float_or_none(row->has_samples, row->samples),
        float_or_none(row->has_tokens, row->tokens), (long long)row->inferred, (long long)row->idle_ns,
        row->is_complete ? (long long)row->completed_ns : 0, row->is_complete ? (long long)row->completed_us : 0, logged);
}

/* ---- the type ------------------------------------------------------------------------------------------------------ */

static PyObject *stretch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *(*allocate)(PyTypeObject *, Py_ssize_t) = (PyObject * (*)(PyTypeObject *, Py_ssize_t))
        PyType_GetSlot(type, Py_tp_alloc);
    Stretch *self = (Stretch *)allocate(type, 0); /* filled with zeros */
    if (self == NULL) return NULL;
    self->rows = PyMem_Calloc(ROWS, sizeof *self->rows);
    if (self->rows != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void stretch_dealloc(Stretch *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    forget_batches(self->batches, &self->num_batches);
    forget_batches(self->last, &self->num_last);
    for (int at = 0; at < self->num_sets; at++) Py_DECREF(self->sets[at].names);
    PyMem_Free(self->rows);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_step(Stretch *self, void *unused) { return PyLong_FromLongLong(open_row(self)->step); }

static PyMethodDef STRETCH_METHODS[] = {
    {"forward", (PyCFunction)(void (*)(void))stretch_forward, METH_FASTCALL, "forward(module, args, kwargs)"},
    {"begin", (PyCFunction)(void (*)(void))stretch_begin, METH_FASTCALL, "begin(optimizer, args, kwargs)"},
    {"end", (PyCFunction)(void (*)(void))stretch_end, METH_FASTCALL, "end(optimizer, args, kwargs)"},
    {"annotate", (PyCFunction)(void (*)(void))stretch_annotate, METH_FASTCALL, "annotate(loss, samples, tokens)"},
    {"log", (PyCFunction)stretch_log, METH_O, "log(values)"},
    {"learn", (PyCFunction)(void (*)(void))stretch_learn, METH_FASTCALL, learn_doc},
    {"start", (PyCFunction)stretch_start, METH_VARARGS, start_doc},
    {"take", (PyCFunction)stretch_take, METH_NOARGS, take_doc},
    {"stop", (PyCFunction)stretch_stop, METH_NOARGS, stop_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef STRETCH_MEMBERS[] = {
    {"is_on", T_BOOL, offsetof(Stretch, is_on), 0, NULL},
    {"backward", T_BOOL, offsetof(Stretch, backward), 0, NULL},
    {"own_ns", T_LONGLONG, offsetof(Stretch, own_ns), READONLY, NULL},
    {"base_ns", T_LONGLONG, offsetof(Stretch, base_ns), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef STRETCH_GETTERS[] = {{"step", (getter)get_step, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot STRETCH_SLOTS[] = {
    {Py_tp_new, stretch_new},         {Py_tp_dealloc, stretch_dealloc}, {Py_tp_methods, STRETCH_METHODS},
    {Py_tp_members, STRETCH_MEMBERS}, {Py_tp_getset, STRETCH_GETTERS},  {0, NULL},
};

static PyType_Spec STRETCH = {
    .name = "halfscope.native._helper.Stretch",
    .basicsize = sizeof(Stretch),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = STRETCH_SLOTS,
};

PyDoc_STRVAR(use_hooks_doc, "use_hooks(grad_enabled, leading_size, hold): what a stretch asks of Python");

static PyObject *use_hooks(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
    if (!are(num_args, 3)) return NULL;
    for (int at = 0; at < 3; at++) Py_INCREF(args[at]);
    call_grad_enabled = args[0], call_leading_size = args[1], call_hold = args[2];
    Py_RETURN_NONE;
}

/* Adds the type to the module. */
static int add_stretch(PyObject *module) {
    text_param_groups = PyUnicode_InternFromString("param_groups");
    text_grad_scale = PyUnicode_InternFromString("grad_scale");
    text_lr = PyUnicode_InternFromString("lr");
    PyObject *type = PyType_FromSpec(&STRETCH);
    if (text_param_groups == NULL || text_grad_scale == NULL || text_lr == NULL || type == NULL) return 0;
    return PyModule_AddObjectRef(module, "Stretch", type) == 0;
}
