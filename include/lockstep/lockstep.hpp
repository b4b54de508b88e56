/* C++17 classes for trainers and models: inline code that calls the C functions, releases the
 * objects and throws errors as exceptions. The rules of the C headers apply. `get` returns the C
 * object, for C functions that have no method, as in lockstep::check(ls_trainer_load,
 * trainer.get(), "file"). No exception may leave a callback. An object that was moved from is
 * empty: `get` returns NULL, it can be destroyed or assigned to, other methods throw LS_EINVAL. */
#ifndef LOCKSTEP_LOCKSTEP_HPP
#define LOCKSTEP_LOCKSTEP_HPP
#include <lockstep/model.h>
#include <lockstep/trainer.h>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>
namespace lockstep {
/* The exception for a failed call. what() is the message, `status` the ls_status, `reason` the
 * ls_error_reason. */
struct error : std::runtime_error {
    explicit error(const ls_error &e)
        : std::runtime_error(e.text), status(e.status), reason(e.reason) {}
    int status, reason;
};
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
    if (!object)
        throw error(ls_error{LS_EINVAL, "the object is empty: it was moved from", LS_REASON_NONE});
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
     * type `type`; T is float or double. */
    template <class T = float>
    std::vector<T> predict(const void *rows, ls_row_type type, uint32_t n = 1,
                           ls_output form = LS_OUTPUT_PROBABILITIES) const
    {
        static_assert(std::is_same<T, float>::value || std::is_same<T, double>::value, "T");
        std::vector<T> out(size_t{n} * info().outputs);
        const int f64 = std::is_same<T, double>::value ? int{LS_OUTPUT_F64} : 0;
        check(ls_model_predict, get(), rows, type, n, form | f64, static_cast<void *>(out.data()),
              out.size());
        return out;
    }
};
/* A training run. The object cannot be copied, only moved. */
class trainer {
    std::unique_ptr<ls_trainer, int (*)(ls_trainer *)> owner{nullptr, ls_trainer_close};
public:
    explicit trainer(const ls_trainer_options &options)
    { ls_trainer *t; check(ls_trainer_open, &t, &options); owner.reset(t); }
    ls_trainer *get() const { return owner.get(); }
    const ls_result &result() const { return *ls_trainer_result(held(get())); }
    void run() { check(ls_trainer_run, held(get())); }
    void save(const char *path) { check(ls_trainer_save, held(get()), path); }
    void load(const char *path) { check(ls_trainer_load, held(get()), path); }
    void load_weights(const char *path, ls_load_state state)
    { check(ls_trainer_load_weights, held(get()), path, state); }
    void set_lr(double lr) { check(ls_trainer_set_lr, held(get()), lr); }
    lockstep::model model()
    { ls_model *m; check(ls_trainer_model, held(get()), &m); return lockstep::model(m); }
    ls_step_result step(const ls_step_rows &rows)
    {
        auto r = sized<ls_step_result>();
        check(ls_trainer_step, held(get()), &rows, &r);
        return r;
    }
    ls_step_result step(const void *rows, ls_row_type type, const void *targets, uint32_t n,
                        const float *weights = nullptr)
    { return step(ls_step_rows{sizeof(ls_step_rows), rows, targets, type, n, weights}); }
    ls_evaluation evaluate()
    { auto e = sized<ls_evaluation>(); check(ls_trainer_evaluate, held(get()), &e); return e; }
};
} // namespace lockstep
#endif
