// SPDX-License-Identifier: MIT
/* C++17 classes for trainers and models: inline code that calls the C functions, releases the
 * objects and throws errors as exceptions. The rules of the C headers apply. `get` returns the C
 * object, for C functions that have no method, as in lockstep::check(ls_trainer_load,
 * trainer.get(), "file"). No exception may leave a C callback: the constructor of `trainer` takes
 * functions that may throw, and `guarded` runs the body of other callbacks. An object that was
 * moved from is empty: `get` returns NULL, it can be destroyed or assigned to, other methods throw
 * LS_EINVAL. */
#ifndef LOCKSTEP_LOCKSTEP_HPP
#define LOCKSTEP_LOCKSTEP_HPP
#include <lockstep/model.h>
#include <lockstep/trainer.h>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
namespace lockstep {
/* The exception for a failed call. what() is the message, `status` the ls_status, `reason` the
 * ls_error_reason. */
struct error : std::runtime_error {
    explicit error(const ls_error &e)
        : std::runtime_error(e.text), status(e.status), reason(e.reason) {}
    error(int code, const std::string &what)
        : std::runtime_error(what), status(code), reason(LS_REASON_NONE) {}
    int status, reason;
};
/* Calls f() in a callback that returns a status. An exception becomes an error with its message:
 * of the status of `error`, else LS_EINVAL. Returns the status. */
template <class F> int guarded(ls_error *err, F &&f) noexcept
{
    int status = LS_EINVAL;
    const char *what = "an exception that is no std::exception";
    auto fail = [&] { if (err) std::snprintf(err->text, sizeof err->text, "%s", what); return status; };
    try { f(); return LS_OK; }
    catch (const error &e) { status = e.status; what = e.what(); return fail(); }
    catch (const std::exception &e) { what = e.what(); return fail(); }
    catch (...) { return fail(); }
}
/* Calls function(arguments…, &err), and throws `error` if the call fails. */
template <class F, class... A> void check(F *function, A... arguments)
{
    ls_error err;
    if (function(arguments..., &err) != LS_OK) throw error(err);
}
/* Returns an options structure T in which `size` is set and all other fields are zero. */
template <class T> T sized() { T options{}; options.size = sizeof options; return options; }
/* Returns `object`, and throws LS_EINVAL if it is NULL. */
template <class T> T *held(T *object)
{
    if (!object) throw error(LS_EINVAL, "the object is empty: it was moved from or closed");
    return object;
}
/* A trained model, from a file or a trainer. Copies of the object share one model. Any thread may
 * use it. */
class model {
    std::shared_ptr<ls_model> owner;
public:
    explicit model(ls_model *owned) : owner(owned, ls_model_release) {}
    explicit model(const char *path, const ls_model_options *options = nullptr)
    { ls_model *s; check(ls_model_open, &s, path, options); *this = model(s); }
    ls_model *get() const { return owner.get(); }
    ls_model_info info() const
    { auto i = sized<ls_model_info>(); check(ls_model_describe, held(get()), &i); return i; }
    const char *class_name(int index) const { return ls_model_class_name(held(get()), index); }
    void save(const char *path) const { check(ls_model_save, held(get()), path); }
    /* Returns the model's outputs for n input rows, [n][outputs]. The values of the rows have the
     * type `row_type`; T is float or double; `form` is an ls_output without LS_OUTPUT_F64. */
    template <class T = float>
    std::vector<T> predict(const void *rows, ls_row_type row_type, uint32_t n = 1,
                           int form = LS_OUTPUT_PREDICTION) const
    {
        static_assert(std::is_same<T, float>::value || std::is_same<T, double>::value, "T");
        std::vector<T> out(size_t{n} * info().outputs);
        const int f64 = std::is_same<T, double>::value ? int{LS_OUTPUT_F64} : 0;
        check(ls_model_predict, get(), rows, row_type, n, form | f64, static_cast<void *>(out.data()),
              out.size());
        return out;
    }
};
/* Functions that a trainer calls on its owner's thread, as ls_trainer_callbacks. Each may be empty.
 * An exception ends the run: `trainer::run` then throws an `error` with its message. */
struct callbacks {
    std::function<void(const char *json, size_t length)> record;
    std::function<void(const ls_progress &)> progress;
    std::function<void(lockstep::model)> model;
    uint64_t model_every_steps = 0;
};
/* A training run. The object cannot be copied, only moved. The destructor ignores errors: call
 * `close` if a lost last checkpoint matters. */
class trainer {
    struct closer { void operator()(ls_trainer *t) const { ls_trainer_close(t, nullptr); } };
    /* The functions and what the C callbacks need, at an address that does not change. */
    struct listener {
        callbacks call;
        ls_trainer *trainer = nullptr; /* NULL while it is opened */
        ls_error failed{}; /* first exception of a callback without a status; cleared by `run` */
        template <class F> void guard(F &&f)
        {
            ls_error why{};
            const int status = guarded(&why, f);
            if (status == LS_OK || failed.status != LS_OK) return;
            failed = why;
            failed.status = status;
            ls_trainer_interrupt(trainer);
        }
        static listener &of(void *user) { return *static_cast<listener *>(user); }
        static int record(void *user, const char *json, size_t length, ls_error *err)
        { return guarded(err, [&] { of(user).call.record(json, length); }); }
        static void progress(void *user, const ls_progress *p)
        { of(user).guard([&] { of(user).call.progress(*p); }); }
        static void model(void *user, ls_model *m)
        { of(user).guard([&] { of(user).call.model(lockstep::model(ls_model_retain(m))); }); }
    };
    std::unique_ptr<listener> heard; /* outlives the trainer */
    std::unique_ptr<ls_trainer, closer> owner;
public:
    explicit trainer(const ls_trainer_options &options)
    { ls_trainer *t; check(ls_trainer_open, &t, &options); owner.reset(t); }
    /* Opens a trainer for the data `source`, with a text of a config whose data.name selects it. */
    trainer(const char *config_text, const ls_data_source &source)
    {
        const ls_data_source *const sources[] = {&source};
        auto options = sized<ls_trainer_options>();
        options.config_text = config_text;
        options.sources = sources;
        options.source_count = 1;
        *this = trainer(options);
    }
    /* Opens a trainer with these functions; options.callbacks is not used. */
    trainer(const ls_trainer_options &options, callbacks functions) : heard(new listener)
    {
        heard->call = std::move(functions);
        auto c = sized<ls_trainer_callbacks>();
        if (heard->call.record) c.record = listener::record;
        if (heard->call.progress) c.progress = listener::progress;
        if (heard->call.model) c.model = listener::model;
        c.model_every_steps = heard->call.model_every_steps;
        c.user = heard.get();
        ls_trainer_options all = options;
        all.callbacks = &c;
        ls_trainer *t;
        check(ls_trainer_open, &t, &all);
        owner.reset(t);
        heard->trainer = t;
    }
    trainer(trainer &&) = default;
    trainer &operator=(trainer &&other) noexcept
    { owner = std::move(other.owner); heard = std::move(other.heard); return *this; }
    ls_trainer *get() const { return owner.get(); }
    /* Closes the trainer, and throws what ls_trainer_close returns. Does nothing if it is empty. */
    void close()
    {
        ls_error err{};
        const int status = ls_trainer_close(get(), &err);
        if (status != LS_EINVAL && status != LS_ECANCELED) (void)owner.release();
        if (status != LS_OK) throw error(err);
    }
    const ls_result &result() const { return *ls_trainer_result(held(get())); }
    void run()
    {
        ls_error err{};
        const int status = ls_trainer_run(held(get()), &err);
        const ls_error failed = heard ? std::exchange(heard->failed, ls_error{}) : ls_error{};
        if (failed.status != LS_OK) throw error(failed);
        if (status != LS_OK) throw error(err);
    }
    /* Asks `run` or `step` to stop. Any thread. */
    void interrupt() { ls_trainer_interrupt(get()); }
    void save(const char *path) { check(ls_trainer_save, held(get()), path); }
    void load(const char *path) { check(ls_trainer_load, held(get()), path); }
    void load_weights(const char *path, ls_load_state state)
    { check(ls_trainer_load_weights, held(get()), path, state); }
    void set_lr(double lr) { check(ls_trainer_set_lr, held(get()), lr); }
    lockstep::model model()
    { ls_model *m; check(ls_trainer_model, &m, held(get())); return lockstep::model(m); }
    ls_step_result step(const ls_step_rows &rows)
    {
        auto r = sized<ls_step_result>();
        check(ls_trainer_step, held(get()), &rows, &r);
        return r;
    }
    ls_step_result step(const void *rows, ls_row_type row_type, const void *targets, uint32_t n,
                        const float *weights = nullptr)
    {
        auto given = sized<ls_step_rows>();
        given.rows = rows;
        given.targets = targets;
        given.row_type = row_type;
        given.n = n;
        given.weights = weights;
        return step(given);
    }
    ls_evaluation evaluate()
    { auto e = sized<ls_evaluation>(); check(ls_trainer_evaluate, held(get()), &e); return e; }
};
} // namespace lockstep
#endif
