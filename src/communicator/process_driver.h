// SPDX-License-Identifier: Apache-2.0
// process_driver.h: the driver, and the memory for tensors, that the communicators of a process
// share.
#pragma once

#include <memory>

#include "engine/driver.h"
#include "memory/shared_pool.h"

namespace ciuic {

// The one that a living communicator holds, else a new one made with `options`. After a fork the
// parent's is left alone, since its threads are not here.
Result<std::shared_ptr<engine::Driver>> process_driver(const engine::DriverOptions& options);

// The same of the memory for tensors, which these hold, too.
std::shared_ptr<memory::SharedPool> process_shared_pool();

}  // namespace ciuic
