// SPDX-License-Identifier: MIT
// Every member of <lockstep/lockstep.hpp>, against the installed library: what is released, what is
// shared, and what is thrown. The header is included twice over and in two files (other.cpp).
#include <lockstep/lockstep.hpp>
#include <lockstep/lockstep.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>

int status_of_a_missing_file(); // other.cpp

static_assert(!std::is_copy_constructible<lockstep::trainer>::value, "a trainer has one owner");
static_assert(std::is_nothrow_move_constructible<lockstep::trainer>::value, "");
static_assert(std::is_copy_constructible<lockstep::model>::value, "models are shared");

enum { ROWS = 32, PIXELS = 784 };

static int live; // blocks that the library holds

static void expect(bool holds, const char *what)
{
    if (!holds) {
        std::printf("expected that %s\n", what);
        std::exit(1);
    }
}

static void *allocate(void *, size_t bytes, size_t align)
{
    __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return std::aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void release(void *, void *memory)
{
    __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    std::free(memory);
}

static const char config[] =
    R"({"data": {"name": "given"}, "batch_size": 32, "run_dir": null, "devices": "cpu:2",
        "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]},
        "optimizer": {"name": "sgd", "lr": 0.1}})";

static void use(const ls_host *host)
{
    static unsigned char rows[ROWS * PIXELS];
    static int32_t labels[ROWS];
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % 10;
        std::memset(rows + i * PIXELS + i % 10 * 70, 255, 70);
    }
    auto given = lockstep::sized<ls_data_source>();
    given.name = "given";
    given.channels = 1;
    given.height = given.width = 28;
    given.row_type = LS_ROW_U8;
    given.classes = 10;
    given.streamed = 1;
    const ls_data_source *sources[] = {&given};
    auto options = lockstep::sized<ls_trainer_options>();
    options.config_text = config;
    options.sources = sources;
    options.source_count = 1;
    options.host = host;

    lockstep::trainer first(options);
    lockstep::trainer trainer(std::move(first));
    ls_step_result step{};
    for (int i = 0; i < 20; i++)
        step = trainer.step(rows, LS_ROW_U8, labels, ROWS);
    expect(step.number == 20 && step.loss < 1, "twenty steps were done and learnt something");
    expect(trainer.result().steps == 20, "result() counts them");
    const auto wide = trainer.model().predict<double>(rows, LS_ROW_U8, 1);
    const auto narrow = trainer.model().predict(rows, LS_ROW_U8, 1);
    expect(wide.size() == 10 && static_cast<float>(wide[0]) == narrow[0], "doubles are finer floats");
    int status = LS_OK;
    try {
        trainer.step(rows, LS_ROW_U8, labels, ROWS - 1);
    } catch (const lockstep::error &e) {
        status = e.status;
        expect(std::strstr(e.what(), "31") != nullptr, "what() is the message");
    }
    expect(status == LS_EINVAL, "a step of another number of rows throws LS_EINVAL");

    trainer.save("trainer.safetensors");
    trainer.load_weights("trainer.safetensors", LS_STATE_KEEP);
    trainer.set_lr(0.05);
    lockstep::model model = trainer.model(), copy = model;
    { lockstep::trainer gone(std::move(trainer)); }
    expect(copy.get() == model.get() && copy.info().steps == 20, "copies share a model");
    model.save("model.safetensors");
    auto about = lockstep::sized<ls_model_options>();
    about.host = host;
    model = lockstep::model("model.safetensors", &about);
    const auto p = model.predict(rows, LS_ROW_U8, 2),
               logits = copy.predict(rows, LS_ROW_U8, 1, LS_OUTPUT_LOGITS);
    expect(p.size() == 20 && logits.size() == 10, "there is an output for each row and class");
    const float sum = std::accumulate(p.begin(), p.begin() + 10, 0.f);
    expect(std::fabs(sum - 1) < 1e-5f, "probabilities sum to one");
    expect(p[0] > 0.5 && p[11] > 0.5 && logits[0] > logits[1], "both rows are recognised");
    expect(model.class_name(0) == nullptr, "the classes have no names");
    lockstep::check(ls_model_save, copy.get(), "trainer.safetensors");
}

template <class F> static void expect_empty(F call, const char *what)
{
    int status = LS_OK;
    try {
        call();
    } catch (const lockstep::error &e) {
        status = e.status;
    }
    expect(status == LS_EINVAL, what);
}

// Every method of an object that was moved from, and what can be done with it after that.
static void move()
{
    static unsigned char rows[ROWS * PIXELS];
    static int32_t labels[ROWS];
    auto given = lockstep::sized<ls_data_source>();
    given.name = "given";
    given.channels = 1;
    given.height = given.width = 28;
    given.row_type = LS_ROW_U8;
    given.classes = 10;
    given.streamed = 1;
    lockstep::trainer from(config, given);
    lockstep::model shown = from.model();
    lockstep::trainer to(std::move(from));
    expect(from.get() == nullptr, "a trainer that was moved from is empty");
    expect_empty([&] { (void)from.result(); }, "result() throws");
    expect_empty([&] { from.run(); }, "run() throws");
    expect_empty([&] { from.save("file"); }, "save() throws");
    expect_empty([&] { from.load_weights("file", LS_STATE_RESET); }, "load_weights() throws");
    expect_empty([&] { from.set_lr(1); }, "set_lr() throws");
    expect_empty([&] { (void)from.model(); }, "model() throws");
    expect_empty([&] { (void)from.step(rows, LS_ROW_U8, labels, ROWS); }, "step() throws");
    to.step(rows, LS_ROW_U8, labels, ROWS);
    expect(std::strlen(to.result().weights_sha256) == 64, "a step has a hash");
    from = std::move(to);
    from.step(rows, LS_ROW_U8, labels, ROWS);
    expect(from.result().steps == 2, "a trainer can be moved back");

    lockstep::model kept = std::move(shown);
    expect(shown.get() == nullptr, "a model that was moved from is empty");
    expect_empty([&] { (void)shown.info(); }, "info() throws");
    expect_empty([&] { (void)shown.class_name(0); }, "class_name() throws");
    expect_empty([&] { shown.save("file"); }, "save() of a model throws");
    expect_empty([&] { (void)shown.predict(rows, LS_ROW_U8); }, "predict() of a model throws");
    const lockstep::model copy = shown;
    expect_empty([&] { (void)copy.predict(rows, LS_ROW_U8); }, "predict() of its copy throws");
    shown = kept;
    expect(shown.predict(rows, LS_ROW_U8).size() == 10, "a model can be assigned to");
}

static int read_rows(void *user, int, const uint32_t *, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    return lockstep::guarded(err, [&] {
        if (*static_cast<bool *>(user)) throw std::out_of_range("no row is there");
        std::memset(values, 7, count * PIXELS);
        std::memset(targets, 0, count * sizeof(int32_t));
    });
}

// Runs with functions as callbacks, of which one may throw. Returns the message of run().
// A second call of run() has an error of its own.
static std::string run_with(const ls_trainer_options &options, lockstep::callbacks functions)
{
    lockstep::trainer opened(options, std::move(functions)), trainer(std::move(opened));
    std::string message;
    try {
        trainer.run();
    } catch (const lockstep::error &e) {
        message = e.what();
        expect(e.status == LS_EINVAL || e.status == LS_EDATA, "an exception has a status");
    }
    std::string again;
    try {
        trainer.run();
    } catch (const lockstep::error &e) {
        again = e.what();
    }
    expect(again.find("runs once") != std::string::npos, "a second run says why it is refused");
    trainer.close();
    expect(trainer.get() == nullptr, "a trainer that was closed is empty");
    trainer.close();
    return message;
}

static void hear()
{
    bool fails = false;
    auto given = lockstep::sized<ls_data_source>();
    given.name = "given";
    given.channels = 1;
    given.height = given.width = 28;
    given.row_type = LS_ROW_U8;
    given.classes = 10;
    given.train_rows = 4 * ROWS;
    given.read = read_rows;
    given.user = &fails;
    const ls_data_source *sources[] = {&given};
    auto options = lockstep::sized<ls_trainer_options>();
    options.config_text = config;
    options.sources = sources;
    options.source_count = 1;

    int records = 0, steps = 0, models = 0;
    lockstep::callbacks all;
    all.record = [&](const char *json, size_t length) { records += json[length - 1] == '}'; };
    all.progress = [&](const ls_progress &) { steps++; };
    all.model = [&](lockstep::model m) { models += m.info().outputs == 10; };
    all.model_every_steps = 2;
    expect(run_with(options, all).empty(), "a run with functions has no error");
    expect(records > 4 && steps >= 4 && models >= 2, "the functions are called");

    auto throwing = all;
    throwing.record = [](const char *, size_t) { throw std::runtime_error("the log is full"); };
    expect(run_with(options, throwing).find("the log is full") != std::string::npos,
           "an exception of record ends the run");
    throwing = all;
    throwing.progress = [](const ls_progress &) { throw lockstep::error(LS_EDATA, "enough"); };
    expect(run_with(options, throwing) == "enough", "an exception of progress does");
    throwing = all;
    throwing.model = [](lockstep::model) { throw 1; };
    expect(run_with(options, throwing) == "an exception that is no std::exception",
           "an exception of model does");
    fails = true;
    std::string message;
    try {
        lockstep::trainer never(options, all);
    } catch (const lockstep::error &e) {
        message = e.what();
    }
    expect(message.find("no row is there") != std::string::npos, "an exception of read does");
}

int main()
{
    move();
    hear();
    auto host = lockstep::sized<ls_host>();
    host.alloc = allocate;
    host.free = release;
    use(&host);
    expect(live == 0, "everything was released");
    expect(status_of_a_missing_file() == LS_ENOENT, "a missing file throws LS_ENOENT");
    return 0;
}
