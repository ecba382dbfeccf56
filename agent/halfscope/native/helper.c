/* The compiled helper: sums of squares and exponent sketches of arrays in host memory, in one pass each.
 *
 * Built where a C compiler is (hatch_build.py); whoever calls it has another way to the same numbers. It reads memory
 * and writes into no tensor but the one that `divide` is given. Limited API: one build serves every Python from 3.11 on.
 * Invariants: what is not dense host memory of a type it knows is refused, not guessed; counts are taken from bits, so
 * they are exact whatever the processor does with subnormals; sums are in double precision, in another order than
 * NumPy's. Elements may lie at any address.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HELPER_VERSION 3 /* of this interface: halfscope.native takes no other */
#define BLOCK 2048       /* elements that are worked on at a time: they stay in the first cache */
#define FULL (1u << 30)  /* elements after which 32-bit counts are added up */
#define GIL_ELEMENTS 262144 /* less than some 100 us of work: handing the interpreter over costs more than it gives */

#if defined(__GNUC__) && defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))
#define HAS_WIDE() __builtin_cpu_supports("avx2")
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define ANYWHERE __attribute__((aligned(1), may_alias))
#else
#define INLINE static inline
#define ANYWHERE
#endif

typedef float f32 ANYWHERE;
typedef double f64 ANYWHERE;
typedef uint16_t u16 ANYWHERE;
typedef uint32_t u32 ANYWHERE;
typedef uint64_t u64 ANYWHERE;

/* Four at a time, written out: compilers were seen to take the loops over lanes one number after the other. */
#if defined(__GNUC__) && defined(__has_builtin)
#if __has_builtin(__builtin_convertvector)
#define FOURS
typedef float floats __attribute__((vector_size(16), aligned(1), may_alias));
typedef double doubles __attribute__((vector_size(32)));
#endif
#endif

typedef enum { F16, BF16, F32, F64 } Kind;
static const size_t BYTES[] = {2, 2, 4, 8};

typedef struct {
    const char *data;
    size_t count;
    Kind kind;
} Span;

/* ---- loading ------------------------------------------------------------------------------------------------- */

/* The bits of an FP16 number as those of the float32 that it is. Its subnormals are normal there. */
INLINE uint32_t half_bits(uint16_t half) {
    uint32_t magnitude = half & 0x7fffu, sign = (half & 0x8000u) << 16, is_small = -(uint32_t)(magnitude < 0x0400u);
    float small = (float)(int32_t)magnitude * 0x1p-24f;
    uint32_t small_bits;
    memcpy(&small_bits, &small, 4);
    uint32_t bits = (magnitude << 13) + (magnitude < 0x7c00u ? 0x38000000u : 0x70000000u);
    return sign | (is_small & small_bits) | (~is_small & bits);
}

INLINE void load_bits(const Span *span, size_t start, size_t count, uint32_t *bits) {
    if (span->kind == F32) {
        memcpy(bits, span->data + 4 * start, 4 * count);
    } else if (span->kind == BF16) {
        const u16 *from = (const u16 *)span->data + start;
        for (size_t i = 0; i < count; i++) bits[i] = (uint32_t)from[i] << 16;
    } else {
        uint16_t from[BLOCK];
        memcpy(from, span->data + 2 * start, 2 * count);
        for (size_t i = 0; i < count; i++) bits[i] = half_bits(from[i]);
    }
}

/* ---- sum of squares ------------------------------------------------------------------------------------------ */

#define LANES 16 /* as many sums as hide the latency of an addition */

#define SUM_SQUARES(from, count, total)                                     \
    do {                                                                    \
        double lanes[LANES] = {0};                                          \
        size_t i = 0;                                                       \
        for (; i + LANES <= (count); i += LANES)                            \
            for (int lane = 0; lane < LANES; lane++) {                      \
                double value = (double)(from)[i + lane];                    \
                lanes[lane] += value * value;                               \
            }                                                               \
        for (; i < (count); i++) lanes[0] += (double)(from)[i] * (double)(from)[i]; \
        for (int lane = 0; lane < LANES; lane++) (total) += lanes[lane];    \
    } while (0)

/* Of float32; where `into` is no null pointer its elements are those multiplied by a number, each product rounded once as
 * the framework rounds it. Four parts are walked side by side: of small pages the processor fetches several at once, each
 * of which it follows to its end only, so that memory is read in two thirds of the time. */
INLINE double squares32(const f32 *from, size_t count, f32 *into, float by) {
    double total = 0.0, sums[LANES] = {0};
    size_t i = 0;
#ifdef FOURS
    doubles fours[LANES / 4] = {{0}};
    const floats factors = {by, by, by, by};
    const size_t part = count / LANES * 4;
    for (; i < part; i += 4)
        for (int at = 0; at < LANES / 4; at++) {
            size_t place = at * part + i;
            floats values = *(const floats *)(from + place);
            if (into != NULL) *(floats *)(into + place) = values * factors;
            doubles wide = __builtin_convertvector(values, doubles);
            fours[at] += wide * wide;
        }
    memcpy(sums, fours, sizeof sums);
    i = part * (LANES / 4);
#endif
    for (; i < count; i++) {
        float value = from[i];
        if (into != NULL) into[i] = value * by;
        sums[i % LANES] += (double)value * (double)value;
    }
    for (int lane = 0; lane < LANES; lane++) total += sums[lane];
    return total;
}

INLINE double sum_squares_of(const Span *span) {
    double total = 0.0;
    if (span->kind == F32) {
        total = squares32((const f32 *)span->data, span->count, NULL, 1.0f);
    } else if (span->kind == F64) {
        const f64 *from = (const f64 *)span->data;
        SUM_SQUARES(from, span->count, total);
    } else {
        uint32_t bits[BLOCK];
        for (size_t start = 0; start < span->count; start += BLOCK) {
            size_t count = span->count - start < BLOCK ? span->count - start : BLOCK;
            load_bits(span, start, count, bits);
            total += squares32((const f32 *)bits, count, NULL, 1.0f);
        }
    }
    return total;
}

/* Of what can be written, and is multiplied by a number in the same pass over memory. */
INLINE double scale_of(const Span *span, double factor) {
    if (span->kind == F32) {
        f32 *into = (f32 *)(uintptr_t)span->data;
        return squares32(into, span->count, into, (float)factor);
    }
    f64 *into = (f64 *)(uintptr_t)span->data;
    double total = 0.0;
    for (size_t i = 0; i < span->count; i++) {
        total += into[i] * into[i];
        into[i] *= factor;
    }
    return total;
}

/* ---- sketch -------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t *bins;  /* of exponents from `lowest` on */
    long lowest;
    int64_t zeros, nan, pos_inf, neg_inf;
    double sum, sumsq;
    uint32_t *fields; /* four tables of counts by exponent field: all 0 but between `count32` and `empty_fields` */
    int has_fields;
    uint64_t largest32, smallest32; /* magnitudes as bits; of none 0 and all ones */
    uint64_t largest64, smallest64;
} Row;

INLINE int top_bit(uint64_t word) {
#if defined(__GNUC__)
    return 63 - __builtin_clzll(word);
#else
    int at = 0;
    while (word >>= 1) at++;
    return at;
#endif
}

/* Sum and sum of squares of a block. */
INLINE void add_sums32(Row *row, const uint32_t *bits, size_t count) {
    double sums[8] = {0}, squares[8] = {0};
    size_t i = 0;
#ifdef FOURS
    doubles sum4[4] = {{0}}, square4[4] = {{0}};
    for (; i + 16 <= count; i += 16)
        for (int at = 0; at < 4; at++) {
            doubles wide = __builtin_convertvector(*(const floats *)(bits + i + 4 * at), doubles);
            sum4[at] += wide;
            square4[at] += wide * wide;
        }
    sum4[0] += sum4[2], sum4[1] += sum4[3], square4[0] += square4[2], square4[1] += square4[3];
    memcpy(sums, sum4, sizeof sums);
    memcpy(squares, square4, sizeof squares);
#endif
    for (; i < count; i++) {
        float value;
        memcpy(&value, &bits[i], 4);
        sums[i % 8] += (double)value;
        squares[i % 8] += (double)value * (double)value;
    }
    for (int lane = 0; lane < 8; lane++) row->sum += sums[lane], row->sumsq += squares[lane];
}

INLINE void add_sums64(Row *row, const uint64_t *bits, size_t count) {
    double sums[8] = {0}, squares[8] = {0};
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, &bits[i], 8);
        sums[i % 8] += value;
        squares[i % 8] += value * value;
    }
    for (int lane = 0; lane < 8; lane++) row->sum += sums[lane], row->sumsq += squares[lane];
}

#ifdef WIDE
typedef uint8_t bytes __attribute__((vector_size(32)));

#define SPREAD 32 /* powers of two that a block may spread over to be counted so */
#define AT_ONCE 8

/* Counts those of a block whose exponent field, as a byte, is one of some: 32 at a time; returns how many there were. */
INLINE size_t tally(const uint8_t *at, size_t count, unsigned lowest, unsigned num_fields, int64_t *bins) {
    size_t whole = count / sizeof(bytes) * sizeof(bytes), found = 0;
    for (unsigned first = 0; first < num_fields; first += AT_ONCE) {
        bytes counts[AT_ONCE];
        for (int field = 0; field < AT_ONCE; field++) counts[field] = (bytes){0};
        for (size_t i = 0; i < whole; i += sizeof(bytes)) /* BLOCK / 32 times: no byte overflows */
            for (int field = 0; field < AT_ONCE; field++)
                counts[field] -= (bytes)(*(const bytes *)(at + i) == (uint8_t)(lowest + first + field));
        for (unsigned field = 0; field < AT_ONCE && first + field < num_fields; field++) {
            unsigned in_it = 0;
            for (size_t lane = 0; lane < sizeof(bytes); lane++) in_it += counts[field][lane];
            bins[first + field] += in_it;
            found += in_it;
        }
    }
    for (size_t i = whole; i < count; i++) {
        unsigned field = (uint8_t)(at[i] - lowest);
        if (field < num_fields) bins[field]++, found++;
    }
    return found;
}

/* A block as nearly all are, zeros and normal numbers of neighbouring powers of two; 0, and nothing is counted, where it
 * is another. Bits are loaded once: `bits` may be `from`, and another thread may be writing there. */
#define COUNT_NARROW(NAME, UINT, FROM, MANTISSA, FIELDS, ADD_SUMS, LARGEST, SMALLEST)                           \
    INLINE int NAME(Row *row, const FROM *from, UINT *bits, size_t count) {                                     \
        uint8_t at[BLOCK] __attribute__((aligned(32)));                                                         \
        UINT largest = 0, smallest = (UINT)-1;                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                    \
            UINT one = from[i], magnitude = one & (UINT)-1 >> 1;                                                \
            bits[i] = one;                                                                                      \
            at[i] = (uint8_t)(one >> MANTISSA);                                                                 \
            largest = magnitude > largest ? magnitude : largest;                                                \
            magnitude--; /* zero becomes the largest there is */                                                \
            smallest = magnitude < smallest ? magnitude : smallest;                                             \
        }                                                                                                       \
        if (largest == 0) {                                                                                     \
            row->zeros += (int64_t)count;                                                                       \
            return 1;                                                                                           \
        }                                                                                                       \
        unsigned highest = (unsigned)(largest >> MANTISSA), lowest = (unsigned)(++smallest >> MANTISSA);        \
        /* Nothing below the lowest but zeros, which must not look like one of the fields in a byte. */         \
        if (highest == FIELDS - 1 || highest - lowest >= SPREAD || (lowest & 255) == 0 || highest >> 8 != lowest >> 8) \
            return 0;                                                                                           \
        int64_t *first = row->bins + (1 - (FIELDS / 2 - 1) - row->lowest) + (lowest - 1);                       \
        row->zeros += (int64_t)(count - tally(at, count, lowest, highest - lowest + 1, first));                 \
        ADD_SUMS(row, bits, count);                                                                             \
        if (largest > row->LARGEST) row->LARGEST = largest;                                                     \
        if (smallest < row->SMALLEST) row->SMALLEST = smallest;                                                 \
        return 1;                                                                                               \
    }

COUNT_NARROW(narrow32, uint32_t, u32, 23, 256, add_sums32, largest32, smallest32)
COUNT_NARROW(narrow64, uint64_t, u64, 52, 2048, add_sums64, largest64, smallest64)
#endif

#define SUBNORMALS 0x1u
#define INFINITES 0x2u

/* One block of numbers by their bits, the same for both widths: the extremes and the sums; returns what of the rare
 * kinds is in it. The common ones are counted by exponent field, in four tables in turn: a processor would wait for the
 * count before where two neighbours have one exponent. */
#define COUNT_BLOCK(NAME, UINT, FLOAT, MANTISSA, FIELDS, LARGEST, SMALLEST)                                        \
    INLINE unsigned NAME(Row *row, const UINT *bits, size_t count, uint32_t (*fields)[FIELDS]) {                   \
        const UINT signless = (UINT)-1 >> 1, infinite = (UINT)(FIELDS - 1) << MANTISSA;                            \
        UINT largest = 0, smallest = (UINT)-1, num_zeros = 0, num_low = 0, num_infinite = 0;                       \
        double sums[8] = {0}, squares[8] = {0};                                                                    \
        size_t i = 0;                                                                                              \
        for (; i + 4 <= count; i += 4)                                                                             \
            for (int lane = 0; lane < 4; lane++) fields[lane][bits[i + lane] >> MANTISSA & (FIELDS - 1)]++;        \
        for (; i < count; i++) fields[0][bits[i] >> MANTISSA & (FIELDS - 1)]++;                                    \
        for (i = 0; i < count; i++) {                                                                              \
            UINT magnitude = bits[i] & signless, is_infinite = -(UINT)(magnitude >= infinite);                     \
            num_zeros += magnitude == 0;                                                                           \
            num_low += magnitude < (UINT)1 << MANTISSA;                                                            \
            num_infinite -= is_infinite;                                                                           \
            magnitude &= ~is_infinite;                                                                             \
            largest = magnitude > largest ? magnitude : largest;                                                   \
            magnitude--; /* zero becomes the largest there is */                                                   \
            smallest = magnitude < smallest ? magnitude : smallest;                                                \
        }                                                                                                          \
        for (i = 0; i + 8 <= count; i += 8)                                                                        \
            for (int lane = 0; lane < 8; lane++) {                                                                 \
                UINT one = (bits[i + lane] & signless) >= infinite ? 0 : bits[i + lane];                           \
                FLOAT value;                                                                                       \
                memcpy(&value, &one, sizeof one);                                                                  \
                sums[lane] += (double)value;                                                                       \
                squares[lane] += (double)value * (double)value;                                                    \
            }                                                                                                      \
        for (; i < count; i++) {                                                                                   \
            UINT one = (bits[i] & signless) >= infinite ? 0 : bits[i];                                             \
            FLOAT value;                                                                                           \
            memcpy(&value, &one, sizeof one);                                                                      \
            sums[0] += (double)value;                                                                              \
            squares[0] += (double)value * (double)value;                                                           \
        }                                                                                                          \
        for (int lane = 0; lane < 8; lane++) row->sum += sums[lane], row->sumsq += squares[lane];                  \
        row->zeros += (int64_t)num_zeros;                                                                          \
        if (largest > row->LARGEST) row->LARGEST = largest;                                                        \
        if (smallest < (UINT)-1 && (uint64_t)smallest + 1 < row->SMALLEST) row->SMALLEST = (uint64_t)smallest + 1; \
        return (num_low > num_zeros ? SUBNORMALS : 0) | (num_infinite ? INFINITES : 0);                            \
    }

COUNT_BLOCK(count32, uint32_t, float, 23, 256, largest32, smallest32)
COUNT_BLOCK(count64, uint64_t, double, 52, 2048, largest64, smallest64)

/* A second look at a block for what is rare. `one` is the exponent of a mantissa of 1. */
#define COUNT_RARE(bits, count, UINT, MANTISSA, FIELDS, one)                                         \
    do {                                                                                             \
        const UINT signless = (UINT)-1 >> 1, infinite = (UINT)(FIELDS - 1) << MANTISSA;              \
        for (size_t i = 0; i < count; i++) {                                                         \
            UINT magnitude = bits[i] & signless;                                                     \
            if (magnitude && magnitude >> MANTISSA == 0) row->bins[top_bit(magnitude) + one - row->lowest]++; \
            row->nan += magnitude > infinite;                                                        \
            row->pos_inf += bits[i] == infinite;                                                     \
            row->neg_inf += magnitude == infinite && bits[i] != infinite;                            \
        }                                                                                            \
    } while (0)

/* Adds tables of exponent fields to the bins, all but those of zeros, subnormals and infinities, and clears them. Only of
 * fields that a row's extremes allow: its table of bins may have no others. */
static void empty_fields(Row *row, int num_fields) {
    if (!row->has_fields) return;
    int64_t *first = row->bins + (1 - (num_fields / 2 - 1) - row->lowest);
    int lowest = (int)(num_fields == 256 ? row->smallest32 >> 23 : row->smallest64 >> 52 & 2047);
    int highest = (int)(num_fields == 256 ? row->largest32 >> 23 : row->largest64 >> 52);
    if (lowest < 1) lowest = 1;
    for (int table = 0; table < 4; table++)
        for (int field = lowest; field <= highest; field++) first[field - 1] += row->fields[table * num_fields + field];
    memset(row->fields, 0, (size_t)num_fields * 4 * sizeof *row->fields);
    row->has_fields = 0;
}

INLINE void sketch32(const Span *span, Row *row, int is_wide) {
    uint32_t bits[BLOCK];
    for (size_t start = 0; start < span->count; start += BLOCK) {
        size_t count = span->count - start < BLOCK ? span->count - start : BLOCK;
#ifdef WIDE
        if (span->kind == F32 && is_wide && narrow32(row, (const u32 *)span->data + start, bits, count)) continue;
#endif
        if (span->kind != F32 || !is_wide) load_bits(span, start, count, bits);
#ifdef WIDE
        if (span->kind != F32 && is_wide && narrow32(row, bits, bits, count)) continue;
#endif
        row->has_fields = 1;
        if (count32(row, bits, count, (uint32_t(*)[256])row->fields)) COUNT_RARE(bits, count, uint32_t, 23, 256, -149);
        if (start % FULL == FULL - BLOCK) empty_fields(row, 256);
    }
    empty_fields(row, 256);
}

/* Of float64, and of all that is divided by what is no power of two. */
INLINE void sketch64(const Span *span, double divide_by, Row *row, int is_wide) {
    uint32_t narrow[BLOCK];
    uint64_t bits[BLOCK];
    for (size_t start = 0; start < span->count; start += BLOCK) {
        size_t count = span->count - start < BLOCK ? span->count - start : BLOCK;
        if (span->kind == F64) memcpy(bits, span->data + 8 * start, 8 * count);
        else load_bits(span, start, count, narrow);
        if (divide_by != 0.0)
            for (size_t i = 0; i < count; i++) {
                double value;
                if (span->kind == F64) {
                    memcpy(&value, &bits[i], 8);
                } else {
                    float single;
                    memcpy(&single, &narrow[i], 4);
                    value = (double)single;
                }
                value /= divide_by;
                memcpy(&bits[i], &value, 8);
            }
#ifdef WIDE
        if (is_wide && narrow64(row, bits, bits, count)) continue;
#endif
        row->has_fields = 1;
        if (count64(row, bits, count, (uint32_t(*)[2048])row->fields)) COUNT_RARE(bits, count, uint64_t, 52, 2048, -1074);
        if (start % FULL == FULL - BLOCK) empty_fields(row, 2048);
    }
    empty_fields(row, 2048);
}

INLINE void sketch_of(const Span *span, double divide_by, Row *row, int is_wide) {
    if (span->kind == F64 || divide_by != 0.0) sketch64(span, divide_by, row, is_wide);
    else sketch32(span, row, is_wide);
}

/* ---- for every processor, and for those with wide registers --------------------------------------------------- */

static double plain_sum_squares(const Span *span) { return sum_squares_of(span); }
static void plain_sketch(const Span *span, double divide_by, Row *row) { sketch_of(span, divide_by, row, 0); }
static double plain_scale(const Span *span, double factor) { return scale_of(span, factor); }
static double (*sum_squares)(const Span *) = plain_sum_squares;
static double (*scale)(const Span *, double) = plain_scale;
static void (*sketch)(const Span *, double, Row *) = plain_sketch;
#ifdef WIDE
WIDE static double wide_sum_squares(const Span *span) { return sum_squares_of(span); }
WIDE static double wide_scale(const Span *span, double factor) { return scale_of(span, factor); }
WIDE static void wide_sketch(const Span *span, double divide_by, Row *row) { sketch_of(span, divide_by, row, 1); }
#endif

/* ---- tensors -------------------------------------------------------------------------------------------------- */

/* The part of DLPack 1.3 that is used: tables of functions that a framework hands out for its tensors. */
typedef struct {
    void *data;
    struct { int32_t type, index; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct {
    struct { uint32_t major, minor; } version;
    void *prev;
    void *allocate, *from_object, *to_object;
    int (*borrow)(void *object, DLTensor *out);
} Exchange;

#define FEW 64 /* tensors for which there is room on the stack */

enum { DEVICE_CPU = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, MAX_DIMS = 16 };

static const Exchange *exchange;
static PyObject *tensor_type, *parameter_type, *text_params, *text_grad, *text_version;

/* Whether a tensor's elements fill a stretch of memory, in whatever order of its axes. */
static int is_dense(const DLTensor *tensor, size_t *count) {
    int64_t expected = 1, total = 1;
    int used[MAX_DIMS] = {0}, ndim = tensor->ndim, at;
    if (ndim > MAX_DIMS) return 0;
    for (at = 0; at < ndim; at++) total *= tensor->shape[at];
    *count = (size_t)total;
    if (total == 0 || tensor->strides == NULL) return 1;
    for (at = ndim - 1; at >= 0; at--) {
        if (tensor->shape[at] == 1) continue;
        if (tensor->strides[at] != expected) break;
        expected *= tensor->shape[at];
    }
    if (at < 0) return 1;
    for (expected = 1; expected < total;) {
        for (at = 0; at < ndim; at++)
            if (!used[at] && tensor->shape[at] != 1 && tensor->strides[at] == expected) break;
        if (at == ndim) return 0;
        used[at] = 1;
        expected *= tensor->shape[at];
    }
    return 1;
}

/* 1: taken; 0: not of a kind that is taken. No exception is left set. */
static int span_of_tensor(PyObject *object, Span *span) {
    DLTensor tensor;
    PyObject *type = (PyObject *)Py_TYPE(object);
    if (type != tensor_type && type != parameter_type) return 0;
    if (exchange->borrow(object, &tensor) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (tensor.device.type != DEVICE_CPU || tensor.dtype.lanes != 1 || !is_dense(&tensor, &span->count)) return 0;
    if (tensor.dtype.code == CODE_BFLOAT && tensor.dtype.bits == 16) span->kind = BF16;
    else if (tensor.dtype.code != CODE_FLOAT) return 0;
    else if (tensor.dtype.bits == 16) span->kind = F16;
    else if (tensor.dtype.bits == 32) span->kind = F32;
    else if (tensor.dtype.bits == 64) span->kind = F64;
    else return 0;
    if (tensor.data == NULL && span->count) return 0;
    span->data = tensor.data == NULL ? NULL : (const char *)tensor.data + tensor.byte_offset;
    return 1;
}

PyDoc_STRVAR(use_torch_doc, "use_torch(table, tensor_type, parameter_type) -> whether sums of squares can be had");

static PyObject *use_torch(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
    if (num_args != 3) {
        PyErr_SetString(PyExc_TypeError, "expected a table and two types");
        return NULL;
    }
    const Exchange *table = PyCapsule_GetPointer(args[0], "dlpack_exchange_api");
    if (table == NULL) return NULL;
    if (table->version.major != 1 || table->borrow == NULL) Py_RETURN_FALSE;
    Py_INCREF(args[1]);
    Py_INCREF(args[2]);
    tensor_type = args[1];
    parameter_type = args[2];
    exchange = table;
    Py_RETURN_TRUE;
}

/* Adds up the squares of tensors whose places are known; the interpreter is handed over where that takes long. */
static double sum_all(const Span *spans, Py_ssize_t count) {
    double total = 0.0;
    size_t num_elements = 0;
    for (Py_ssize_t at = 0; at < count; at++) num_elements += spans[at].count;
    PyThreadState *state = num_elements >= GIL_ELEMENTS ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t at = 0; at < count; at++) total += sum_squares(&spans[at]);
    if (state != NULL) PyEval_RestoreThread(state);
    return total;
}

PyDoc_STRVAR(squares_doc,
             "squares(tensors) -> sum of the squares of all elements of a list of tensors, or None\n\n"
             "None: one of them is nothing that is taken. The list is not changed meanwhile.");

static PyObject *squares(PyObject *module, PyObject *tensors) {
    Span few[FEW], *spans = few;
    PyObject *result = NULL;
    if (exchange == NULL || !PyList_Check(tensors)) Py_RETURN_NONE;
    Py_ssize_t count = PyList_Size(tensors), at;
    if (count > FEW && (spans = PyMem_Malloc((size_t)count * sizeof *spans)) == NULL) return PyErr_NoMemory();
    for (at = 0; at < count && span_of_tensor(PyList_GetItem(tensors, at), &spans[at]); at++) {}
    if (at == count) result = PyFloat_FromDouble(sum_all(spans, count));
    if (spans != few) PyMem_Free(spans);
    if (at == count) return result;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(gradient_squares_doc,
             "gradient_squares(groups) -> likewise of the gradients of an optimizer's groups of parameters\n\n"
             "None also where no parameter has one.");

/* The gradients of one group's parameters, appended to `grads`; 0 where they are nothing that can be walked. */
static int collect(PyObject *group, PyObject *grads) {
    PyObject *params = group == NULL ? NULL : PyObject_GetItem(group, text_params);
    int is_list = params != NULL && PyList_Check(params);
    for (Py_ssize_t at = 0; is_list && at < PyList_Size(params); at++) {
        PyObject *grad = PyObject_GetAttr(PyList_GetItem(params, at), text_grad);
        is_list = grad != NULL && (grad == Py_None || PyList_Append(grads, grad) == 0);
        Py_XDECREF(grad);
    }
    Py_XDECREF(params);
    return is_list;
}

/* Those of all groups, in a new list; NULL where they cannot be walked. No exception is left set. */
static PyObject *gradients_of(PyObject *groups) {
    PyObject *grads = exchange != NULL && PyList_Check(groups) ? PyList_New(0) : NULL;
    int is_list = grads != NULL;
    for (Py_ssize_t at = 0; is_list && at < PyList_Size(groups); at++) is_list = collect(PyList_GetItem(groups, at), grads);
    PyErr_Clear(); /* what is odd about them the slower way finds too */
    if (!is_list) Py_CLEAR(grads);
    return grads;
}

static PyObject *gradient_squares(PyObject *module, PyObject *groups) {
    PyObject *grads = gradients_of(groups), *result = Py_None;
    if (grads != NULL && PyList_Size(grads)) result = squares(module, grads);
    else Py_INCREF(result);
    Py_XDECREF(grads);
    return result;
}

PyDoc_STRVAR(gradient_state_doc,
             "gradient_state(groups) -> a number that is another one where the gradients of an optimizer's groups are\n"
             "others, lie elsewhere, or were changed in place, or None\n\n"
             "Of what torch counts no change of (`.data`, NumPy) a sample is looked at: eight elements of each and one\n"
             "of 4,096. None: one of them is no dense float32 or float64 in host memory.");

#define FEWEST_SAMPLED 8
#define SAMPLED_OF 4096

static uint64_t mixed(uint64_t state, uint64_t word) {
    state = (state ^ word) * 0x9e3779b97f4a7c15u;
    return state ^ state >> 32;
}

static int add_state(PyObject *grad, uint64_t *state) {
    Span span;
    if (!span_of_tensor(grad, &span) || (span.kind != F32 && span.kind != F64)) return 0;
    PyObject *version = PyObject_GetAttr(grad, text_version);
    long changes = version == NULL ? -1 : PyLong_AsLong(version);
    Py_XDECREF(version);
    if (changes < 0) return 0; /* torch counts none in inference mode */
    *state = mixed(mixed(mixed(*state, (uint64_t)(uintptr_t)span.data), span.count), (uint64_t)changes);
    size_t step = span.count / (span.count / SAMPLED_OF + FEWEST_SAMPLED) + 1;
    for (size_t at = 0; at < span.count; at += step) {
        uint64_t bits = 0;
        memcpy(&bits, span.data + at * BYTES[span.kind], BYTES[span.kind]);
        *state = mixed(*state, bits);
    }
    return 1;
}

static PyObject *gradient_state(PyObject *module, PyObject *groups) {
    uint64_t state = 1;
    PyObject *grads = gradients_of(groups);
    int is_known = grads != NULL;
    for (Py_ssize_t at = 0; is_known && at < PyList_Size(grads); at++)
        is_known = add_state(PyList_GetItem(grads, at), &state);
    Py_XDECREF(grads);
    PyErr_Clear();
    if (is_known) return PyLong_FromUnsignedLongLong(state);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(divide_doc,
             "divide(tensor, divisor) -> sum of the squares of a tensor's elements, each of which is then multiplied by\n"
             "the inverse of a number\n\n"
             "None, and nothing has changed: it is no dense float32 or float64 in host memory.");

static PyObject *divide(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
    Span span;
    if (num_args != 2) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor and a number");
        return NULL;
    }
    double divisor = PyFloat_AsDouble(args[1]);
    if (PyErr_Occurred()) return NULL;
    if (exchange == NULL || !span_of_tensor(args[0], &span) || (span.kind != F32 && span.kind != F64)) Py_RETURN_NONE;
    PyThreadState *state = span.count >= GIL_ELEMENTS ? PyEval_SaveThread() : NULL;
    double total = scale(&span, 1.0 / divisor);
    if (state != NULL) PyEval_RestoreThread(state);
    return PyFloat_FromDouble(total);
}

/* ---- arrays --------------------------------------------------------------------------------------------------- */

static int span_of_array(const Py_buffer *view, Span *span) {
    const char *format = view->format == NULL ? "" : view->format;
    if (*format == '=' || *format == '@') format++; /* the first of elements at odd addresses */
    if (strcmp(format, "e") == 0) span->kind = F16;
    else if (strcmp(format, "f") == 0) span->kind = F32;
    else if (strcmp(format, "d") == 0) span->kind = F64;
    else if (strcmp(format, "H") == 0) span->kind = BF16;
    else {
        PyErr_Format(PyExc_TypeError, "an array of format %s; expected e, f, d, or H with the bits of BF16", format);
        return 0;
    }
    span->data = view->buf;
    span->count = (size_t)view->len / BYTES[span->kind];
    return 1;
}

static double value32(uint64_t bits) {
    uint64_t field = bits >> 23, mantissa = bits & 0x7fffff;
    return field ? ldexp((double)(mantissa | 0x800000), (int)field - 150) : ldexp((double)mantissa, -149);
}

static double value64(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static int is_table(const Py_buffer *view, size_t itemsize, size_t count) {
    return (size_t)view->itemsize == itemsize && (size_t)view->len == itemsize * count;
}

PyDoc_STRVAR(sketch_doc,
             "sketch(arrays, divide_by, lowest, counts, numbers, moments)\n\n"
             "Adds the sketch of each array to its row of `counts` (int64, exponents from `lowest` on), and writes its\n"
             "column of `numbers` (int64: n, zeros, nan, +inf, -inf) and of `moments` (float64: sum, sumsq, absmax,\n"
             "smallest nonzero magnitude). `divide_by` of 0 divides nothing; otherwise, and for float64, `counts` is\n"
             "of float64's exponents.");

static void write_row(const Row *row, size_t count, Py_buffer *tables, Py_ssize_t num_rows, Py_ssize_t at) {
    int64_t found[5] = {(int64_t)count, row->zeros, row->nan, row->pos_inf, row->neg_inf}, *numbers = tables[1].buf;
    double *moments = tables[2].buf;
    for (int which = 0; which < 5; which++) numbers[which * num_rows + at] = found[which];
    moments[at] = row->sum;
    moments[num_rows + at] = row->sumsq;
    moments[2 * num_rows + at] = row->largest32 ? value32(row->largest32) : value64(row->largest64);
    moments[3 * num_rows + at] = row->smallest32 != UINT64_MAX ? value32(row->smallest32)
                                 : row->smallest64 != UINT64_MAX ? value64(row->smallest64) : INFINITY;
}

static int fill(PyObject *arrays, double divide_by, long lowest, Py_buffer *tables, Py_ssize_t num_arrays) {
    size_t num_bins = num_arrays ? (size_t)(tables[0].len / 8 / num_arrays) : 0;
    size_t needed = lowest == -149 ? 277 : lowest == -1074 ? 2098 : 0;
    if (!is_table(&tables[0], 8, num_bins * (size_t)num_arrays) || !is_table(&tables[1], 8, 5 * (size_t)num_arrays) ||
        !is_table(&tables[2], 8, 4 * (size_t)num_arrays) || (num_arrays && num_bins != needed)) {
        PyErr_SetString(PyExc_ValueError, "tables of another size than the arrays need");
        return -1;
    }
    uint32_t fields[4 * 2048] = {0};
    for (Py_ssize_t at = 0; at < num_arrays; at++) {
        Py_buffer view;
        Span span;
        PyObject *array = PySequence_GetItem(arrays, at);
        if (array == NULL) return -1;
        int failed = PyObject_GetBuffer(array, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS);
        Py_DECREF(array); /* the view holds it */
        if (failed) return -1;
        failed = !span_of_array(&view, &span);
        if (!failed && lowest == -149 && (span.kind == F64 || divide_by != 0.0)) {
            PyErr_SetString(PyExc_ValueError, "float64 needs a table of its own exponents");
            failed = 1;
        }
        if (failed) {
            PyBuffer_Release(&view);
            return -1;
        }
        Row row = {.bins = (int64_t *)tables[0].buf + (size_t)at * num_bins, .lowest = lowest,
                   .fields = fields, .smallest32 = UINT64_MAX, .smallest64 = UINT64_MAX};
        PyThreadState *state = span.count >= GIL_ELEMENTS ? PyEval_SaveThread() : NULL;
        sketch(&span, divide_by, &row);
        if (state != NULL) PyEval_RestoreThread(state);
        PyBuffer_Release(&view);
        write_row(&row, span.count, tables, num_arrays, at);
    }
    return 0;
}

static PyObject *sketch_arrays(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
    Py_buffer tables[3];
    int num_views = 0, failed = 0;
    if (num_args != 6) {
        PyErr_SetString(PyExc_TypeError, "expected six arguments");
        return NULL;
    }
    double divide_by = PyFloat_AsDouble(args[1]);
    long lowest = PyLong_AsLong(args[2]);
    Py_ssize_t num_arrays = PySequence_Size(args[0]);
    if (PyErr_Occurred()) return NULL;
    for (; num_views < 3 && !failed; num_views += !failed)
        failed = PyObject_GetBuffer(args[3 + num_views], &tables[num_views], PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS);
    failed = failed || fill(args[0], divide_by, lowest, tables, num_arrays);
    while (num_views--) PyBuffer_Release(&tables[num_views]);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* ---- changes of weights --------------------------------------------------------------------------------------- */

typedef struct {
    size_t step, num; /* each `step`-th element as they lie in memory, and how many those are */
} Sampled;

static Sampled sampled(size_t count, size_t most) {
    size_t step = (count + most - 1) / most;
    return (Sampled){step, (count + step - 1) / step};
}

INLINE double element(const Span *span, size_t at) {
    uint32_t bits;
    float single;
    double value;
    if (span->kind == F64) {
        memcpy(&value, span->data + 8 * at, 8);
        return value;
    }
    load_bits(span, at, 1, &bits);
    memcpy(&single, &bits, 4);
    return (double)single;
}

/* Whether the elements of two dense tensors of one shape lie in one order. */
static int lie_alike(PyObject *one, PyObject *other) {
    DLTensor a, b;
    if (exchange->borrow(one, &a) != 0 || exchange->borrow(other, &b) != 0 || a.ndim != b.ndim) return 0;
    for (int at = 0; at < a.ndim; at++) {
        if (a.shape[at] != b.shape[at]) return 0;
        if (a.shape[at] != 1 && a.strides != NULL && b.strides != NULL && a.strides[at] != b.strides[at]) return 0;
    }
    return 1;
}

PyDoc_STRVAR(note_weights_doc,
             "note_weights(parameters, gradients, most) -> bytes, for `sketch_changes`, or None\n\n"
             "Of each parameter at most so many elements, evenly strided, and whether their gradients are finite and not\n"
             "zero. None: one of them is nothing that is taken, or without elements, or a pair lies differently.");

static PyObject *note_weights(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
    if (num_args != 3 || !PyList_Check(args[0]) || !PyList_Check(args[1]) || PyList_Size(args[0]) != PyList_Size(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected two lists of one length and a number");
        return NULL;
    }
    Py_ssize_t num = PyList_Size(args[0]), at;
    size_t most = PyLong_AsSize_t(args[2]), total = 0;
    if (PyErr_Occurred()) return NULL;
    if (exchange == NULL || most == 0) Py_RETURN_NONE;
    Span *spans = PyMem_Malloc((size_t)(2 * num + 1) * sizeof *spans);
    if (spans == NULL) return PyErr_NoMemory();
    for (at = 0; at < num; at++) {
        PyObject *weight = PyList_GetItem(args[0], at), *grad = PyList_GetItem(args[1], at);
        if (!span_of_tensor(weight, &spans[2 * at]) || !span_of_tensor(grad, &spans[2 * at + 1])) break;
        if (spans[2 * at].count == 0 || !lie_alike(weight, grad)) break;
        total += sampled(spans[2 * at].count, most).num;
    }
    PyErr_Clear();
    PyObject *noted = at == num ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(total * 9)) : NULL;
    if (noted != NULL) {
        char *values = PyBytes_AsString(noted), *counts = values + 8 * total;
        PyThreadState *state = total >= GIL_ELEMENTS ? PyEval_SaveThread() : NULL;
        for (at = 0; at < num; at++) {
            Sampled of = sampled(spans[2 * at].count, most);
            for (size_t i = 0; i < of.num; i++, values += 8) {
                double value = element(&spans[2 * at], i * of.step), grad = element(&spans[2 * at + 1], i * of.step);
                memcpy(values, &value, 8);
                *counts++ = (char)(grad != 0.0 && grad - grad == 0.0);
            }
        }
        if (state != NULL) PyEval_RestoreThread(state);
    }
    PyMem_Free(spans);
    if (noted != NULL || PyErr_Occurred()) return noted;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(sketch_changes_doc,
             "sketch_changes(parameters, most, noted, lowest, counts, numbers, moments) -> whether it could be done\n\n"
             "As `sketch`, of what has changed since `note_weights`, in float64, of elements that count. Of tables whose\n"
             "`lowest` is -149 there are 278 exponents, which the difference of two float32 has.");

static void fill_changes(const Span *spans, Py_ssize_t num, size_t most, const char *values, const char *counts,
                         long lowest, Py_buffer *tables) {
    uint32_t fields[4 * 2048] = {0};
    double changed[BLOCK];
    size_t num_bins = num ? (size_t)(tables[0].len / 8 / num) : 0;
    for (Py_ssize_t at = 0; at < num; at++) {
        Row row = {.bins = (int64_t *)tables[0].buf + (size_t)at * num_bins, .lowest = lowest, .fields = fields,
                   .smallest32 = UINT64_MAX, .smallest64 = UINT64_MAX};
        Sampled of = sampled(spans[at].count, most);
        size_t num_counted = 0;
        Span part = {.data = (const char *)changed, .kind = F64};
        for (size_t i = 0; i < of.num; i++, values += 8) {
            double before;
            memcpy(&before, values, 8);
            changed[part.count] = element(&spans[at], i * of.step) - before;
            part.count += *counts++ != 0;
            if (part.count == BLOCK || i + 1 == of.num) {
                sketch(&part, 0.0, &row);
                num_counted += part.count;
                part.count = 0;
            }
        }
        write_row(&row, num_counted, tables, num, at);
    }
}

static PyObject *sketch_changes(PyObject *module, PyObject *const *args, Py_ssize_t num_args) {
    Py_buffer tables[3];
    int num_views = 0, failed = 0, is_done = 0, has_double = 0;
    if (num_args != 7 || !PyList_Check(args[0]) || !PyBytes_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "expected a list, a number, bytes, a number and three tables");
        return NULL;
    }
    size_t most = PyLong_AsSize_t(args[1]), total = 0;
    long lowest = PyLong_AsLong(args[3]);
    Py_ssize_t num = PyList_Size(args[0]), at = 0;
    if (PyErr_Occurred()) return NULL;
    Span *spans = PyMem_Malloc((size_t)(num + 1) * sizeof *spans);
    if (spans == NULL) return PyErr_NoMemory();
    for (; exchange != NULL && at < num && span_of_tensor(PyList_GetItem(args[0], at), &spans[at]); at++) {
        total += spans[at].count ? sampled(spans[at].count, most).num : 0;
        has_double |= spans[at].kind == F64;
    }
    for (; num_views < 3 && !failed; num_views += !failed)
        failed = PyObject_GetBuffer(args[4 + num_views], &tables[num_views], PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS);
    size_t needed = lowest == -149 && !has_double ? 278 : lowest == -1074 ? 2098 : 0;
    if (!failed && at == num && (size_t)PyBytes_Size(args[2]) == 9 * total) {
        failed = !needed || !is_table(&tables[0], 8, needed * (size_t)num) ||
                 !is_table(&tables[1], 8, 5 * (size_t)num) || !is_table(&tables[2], 8, 4 * (size_t)num);
        if (failed) PyErr_SetString(PyExc_ValueError, "tables of another size than the changes need");
        const char *values = PyBytes_AsString(args[2]);
        PyThreadState *state = total >= GIL_ELEMENTS ? PyEval_SaveThread() : NULL;
        if ((is_done = !failed)) fill_changes(spans, num, most, values, values + 8 * total, lowest, tables);
        if (state != NULL) PyEval_RestoreThread(state);
    }
    while (num_views--) PyBuffer_Release(&tables[num_views]);
    PyMem_Free(spans);
    return failed ? NULL : PyBool_FromLong(is_done);
}

#ifdef __linux__ /* where the clock of time.perf_counter is known */
#include "stretch.h"
#endif

/* ---- module --------------------------------------------------------------------------------------------------- */

static PyMethodDef METHODS[] = {
    {"use_torch", (PyCFunction)(void (*)(void))use_torch, METH_FASTCALL, use_torch_doc},
    {"squares", squares, METH_O, squares_doc},
    {"gradient_squares", gradient_squares, METH_O, gradient_squares_doc},
    {"gradient_state", gradient_state, METH_O, gradient_state_doc},
    {"divide", (PyCFunction)(void (*)(void))divide, METH_FASTCALL, divide_doc},
    {"sketch", (PyCFunction)(void (*)(void))sketch_arrays, METH_FASTCALL, sketch_doc},
    {"note_weights", (PyCFunction)(void (*)(void))note_weights, METH_FASTCALL, note_weights_doc},
    {"sketch_changes", (PyCFunction)(void (*)(void))sketch_changes, METH_FASTCALL, sketch_changes_doc},
#ifdef __linux__
    {"use_hooks", (PyCFunction)(void (*)(void))use_hooks, METH_FASTCALL, use_hooks_doc},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_helper",
    .m_doc = "Sums of squares and exponent sketches of arrays in host memory.",
    .m_size = -1,
    .m_methods = METHODS,
};

PyMODINIT_FUNC PyInit__helper(void) {
#ifdef WIDE
    __builtin_cpu_init();
    if (HAS_WIDE()) {
        sum_squares = wide_sum_squares;
        scale = wide_scale;
        sketch = wide_sketch;
    }
#endif
    text_params = PyUnicode_InternFromString("params");
    text_grad = PyUnicode_InternFromString("grad");
    text_version = PyUnicode_InternFromString("_version");
    if (text_params == NULL || text_grad == NULL || text_version == NULL) return NULL;
    PyObject *module = PyModule_Create(&MODULE);
    if (module == NULL || PyModule_AddIntConstant(module, "VERSION", HELPER_VERSION) != 0) return NULL;
#ifdef __linux__
    if (!add_stretch(module)) return NULL;
#endif
    return module;
}
