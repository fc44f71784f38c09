// SPDX-License-Identifier: Apache-2.0
// store_py.cc: stores in both directions. What CIUIC_STORE names, for Python; a Python object with
// set, get, add and name (such as torch's store behind ciuic/rendezvous.py), for C++.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/config.h"
#include "bootstrap/tcp_store.h"
#include "module.h"

namespace ciuic::python {
namespace {

constexpr int64_t kSliceMs = 100;

// Says what was raised, and clears it.
Status status_of(const nb::python_error& error) {
  if (error.matches(PyExc_TimeoutError)) return {StatusCode::kTimeout, error.what()};
  return {StatusCode::kUnavailable, error.what()};
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// A Python object as a Store. Used and dropped by any thread, without the GIL. Once abandoned it
// answers kAborted and touches Python no more: the interpreter may be gone by then.
class PythonStore : public Store {
 public:
  PythonStore(nb::object object, std::shared_ptr<std::atomic<bool>> abandoned)
      : object_(std::move(object)), abandoned_(std::move(abandoned)) {}

  ~PythonStore() override {
    if (abandoned_->load()) {
      object_.release();
      return;
    }
    const nb::gil_scoped_acquire gil;
    object_ = nb::object();
  }

  Status set(const std::string& key, const std::string& value) override {
    if (abandoned_->load()) return aborted();
    const nb::gil_scoped_acquire gil;
    try {
      object_.attr("set")(key, bytes_of(value));
      return {};
    } catch (nb::python_error& error) {
      return status_of(error);
    }
  }

  // Asks in slices, so that a thread that was abandoned is soon out of Python.
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override {
    const TimeNs deadline = deadline_after(now_ns(), timeout_ms);
    for (;;) {
      if (abandoned_->load()) return aborted();
      const int64_t left = left_ms(deadline, now_ns());
      Result<std::string> value = get_once(key, std::min(left, kSliceMs));
      if (value.ok() || value.status().code() != StatusCode::kTimeout || left <= kSliceMs) {
        return value;
      }
    }
  }

  Result<int64_t> add(const std::string& key, int64_t amount) override {
    if (abandoned_->load()) return aborted();
    const nb::gil_scoped_acquire gil;
    try {
      return nb::cast<int64_t>(object_.attr("add")(key, amount));
    } catch (nb::python_error& error) {
      return status_of(error);
    } catch (const nb::cast_error&) {
      return Status(StatusCode::kUnavailable, "the store's add() gave no integer");
    }
  }

  std::string name() const override {
    if (abandoned_->load()) return "python";
    const nb::gil_scoped_acquire gil;
    try {
      return nb::cast<std::string>(object_.attr("name"));
    } catch (nb::python_error&) {
      return "python";
    } catch (const nb::cast_error&) {
      return "python";
    }
  }

 private:
  Result<std::string> get_once(const std::string& key, int64_t timeout_ms) {
    const nb::gil_scoped_acquire gil;
    try {
      const nb::bytes value(object_.attr("get")(key, timeout_ms));
      return std::string(value.c_str(), value.size());
    } catch (nb::python_error& error) {
      return status_of(error);
    }
  }

  static Status aborted() { return {StatusCode::kAborted, "interrupted by a signal"}; }

  nb::object object_;
  std::shared_ptr<std::atomic<bool>> abandoned_;
};

// A store of this module. Its methods serve tests and tools; a join takes the C++ object.
struct PyStore {
  std::shared_ptr<Store> store;
};

template <typename Value>
Value value_or_raise(Result<Value> result) {
  raise_unless_ok(result.status());
  return std::move(*result);
}

PyStore* open(const std::string& url, int64_t timeout_ms) {
  Result<std::unique_ptr<Store>> opened = [&] {
    const nb::gil_scoped_release no_gil;
    return open_store(url, timeout_ms);
  }();
  raise_unless_ok(opened.status());
  return new PyStore{std::shared_ptr<Store>(std::move(*opened))};
}

}  // namespace

std::shared_ptr<Store> store_from(nb::handle object,
                                  const std::shared_ptr<std::atomic<bool>>& abandoned) {
  if (object.is_none()) return nullptr;
  if (nb::isinstance<PyStore>(object)) return nb::cast<PyStore&>(object).store;
  return std::make_shared<PythonStore>(nb::borrow<nb::object>(object), abandoned);
}

// The store that a launcher serves to the ranks that it starts.
class StoreServer {
 public:
  // `secret` as CIUIC_SECRET has it, in hex. The port is one of CIUIC_PORT_RANGE.
  StoreServer(const std::string& address, const std::string& secret) {
    const std::string variable = "CIUIC_SECRET=" + secret;
    Result<Config> config = Config::from({&variable, 1});
    raise_unless_ok(config.status());
    Result<Config> of_environment = Config::from_environment();
    raise_unless_ok(of_environment.status());
    ports_ = of_environment->port_range;
    Result<std::unique_ptr<bootstrap::TcpStoreServer>> started =
        bootstrap::TcpStoreServer::start({address, 0}, config->secret, ports_);
    raise_unless_ok(started.status());
    server_ = std::move(*started);
    url_ = "tcp://" + posix::Address{address, server_->port()}.format();
  }

  const std::string& url() const { return url_; }
  std::pair<int, int> ports() const { return {ports_.first, ports_.last}; }

  void close() {
    const nb::gil_scoped_release no_gil;
    server_.reset();
  }

 private:
  std::unique_ptr<bootstrap::TcpStoreServer> server_;
  std::string url_;
  PortRange ports_;
};

void bind_store(nb::module_& module) {
  nb::class_<StoreServer>(module, "StoreServer", "The store that a launcher serves to its ranks.")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("address"),
           nb::arg("secret"))
      .def_prop_ro("url", &StoreServer::url)
      .def_prop_ro("ports", &StoreServer::ports, "CIUIC_PORT_RANGE; (0, 0): any port.")
      .def("close", &StoreServer::close);

  nb::class_<PyStore>(module, "Store", "A key-value store in which ranks meet.")
      .def(
          "set",
          [](PyStore& self, const std::string& key, nb::bytes value) {
            const std::string text(value.c_str(), value.size());
            Status status = [&] {
              const nb::gil_scoped_release no_gil;
              return self.store->set(key, text);
            }();
            raise_unless_ok(status);
          },
          nb::arg("key"), nb::arg("value"))
      .def(
          "get",
          [](PyStore& self, const std::string& key, int64_t timeout_ms) {
            Result<std::string> value = [&] {
              const nb::gil_scoped_release no_gil;
              return self.store->get(key, timeout_ms);
            }();
            return bytes_of(value_or_raise(std::move(value)));
          },
          nb::arg("key"), nb::arg("timeout_ms"))
      .def(
          "add",
          [](PyStore& self, const std::string& key, int64_t amount) {
            Result<int64_t> sum = [&] {
              const nb::gil_scoped_release no_gil;
              return self.store->add(key, amount);
            }();
            return value_or_raise(std::move(sum));
          },
          nb::arg("key"), nb::arg("amount"))
      .def_prop_ro("name", [](PyStore& self) { return self.store->name(); });

  module.def("open_store", &open, nb::arg("url"), nb::arg("timeout_ms"),
             nb::rv_policy::take_ownership, "Opens file:///directory or tcp://host:port.");
}

}  // namespace ciuic::python
