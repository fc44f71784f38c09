// SPDX-License-Identifier: Apache-2.0
// erasable.h: what our own stores can do beyond ciuic::Store: forget a key, so that a join leaves
// nothing behind.
#pragma once

#include <string>

namespace ciuic::bootstrap {

class Erasable {
 public:
  virtual ~Erasable() = default;

  // Ok also where the key is not there. What goes wrong is not told: nobody could do more.
  virtual void erase(const std::string& key) = 0;
};

}  // namespace ciuic::bootstrap
