// Between a matched route and its handler: idempotency keys, progress streams, errors as answers,
// verbs that wait without a thread (workspace/context/waiters.h), one log line per request. Runs on
// the route's lane; uses no sockets.
#pragma once

#include <memory>

#include "daemon/http/exchange.h"
#include "daemon/http/keyed_answers.h"
#include "daemon/http/router.h"
#include "daemon/http/worker_pools.h"
#include "workspace/context/waiters.h"

namespace moorage::daemon {

class Dispatcher {
 public:
  // A verb that waits needs `waiters`; stop them before destroying the dispatcher.
  Dispatcher(WorkerPools& worker_pools, KeyedAnswers& answers,
             workspace::Waiters* waiters = nullptr)
      : worker_pools_(worker_pools), answers_(&answers), waiters_(waiters) {}
  // For read-only routes: keeps no answers.
  explicit Dispatcher(WorkerPools& worker_pools) : worker_pools_(worker_pools) {}

  // Never throws: the reply carries the error.
  Reply answer(const Route& route, const Request& request);
  // For uploads: throws base::Error before the body is read.
  std::unique_ptr<BodySink> begin_upload(const Route& route, const Request& request);

 private:
  class Call;
  using Done = std::function<void(Reply)>;  // takes the answer from any thread
  using CallPtr = std::shared_ptr<Call>;
  void begin(const CallPtr& call, const workspace::Progress& progress, const Done& done);
  void run(const CallPtr& call, const workspace::Progress& progress, const Done& done);
  void wait(const workspace::Waiting& waiting, const CallPtr& call,
            const workspace::Progress& progress, const Done& done);

  WorkerPools& worker_pools_;
  KeyedAnswers* answers_ = nullptr;
  workspace::Waiters* waiters_ = nullptr;
};

}  // namespace moorage::daemon
