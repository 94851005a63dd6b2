//! Both behave as those of the standard library do.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_list_is_sorted_whatever_its_order(mut items in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut model = items.clone();
        model.sort_unstable();
        sort_by(&mut items, |one, other| one < other);
        prop_assert_eq!(items, model);
    }

    #[test]
    fn a_sorted_map_is_a_map(
        entries in prop::collection::vec((any::<u8>(), any::<u16>()), 0..40),
        steps in prop::collection::vec((0..4_u8, any::<u8>(), any::<u16>()), 0..120),
    ) {
        // Which of two entries with one key is collected is not promised.
        let mut model: BTreeMap<u8, u16> = entries.into_iter().collect();
        let mut map: SortedMap<u8, u16> = model.clone().into_iter().rev().collect();
        for (step, key, value) in steps {
            match step {
                0 => {
                    model.insert(key, value);
                    map.insert(key, value);
                }
                1 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                2 => prop_assert_eq!(map.get_mut(&key), model.get_mut(&key)),
                _ if value % 8 == 0 => {
                    model.retain(|known, _| known % 3 != key % 3);
                    map.retain(|known, _| known % 3 != key % 3);
                }
                _ => prop_assert_eq!(map.contains_key(&key), model.contains_key(&key)),
            }
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert_eq!(map.len(), model.len());
        }
    }

    #[test]
    fn a_sorted_set_is_a_set(
        keys in prop::collection::vec(any::<u8>(), 0..40),
        steps in prop::collection::vec((0..3_u8, any::<u8>()), 0..120),
    ) {
        let mut model: BTreeSet<u8> = keys.iter().copied().collect();
        let mut set: SortedSet<u8> = keys.into_iter().collect();
        for (step, key) in steps {
            match step {
                0 => prop_assert_eq!(set.insert(key), model.insert(key)),
                1 => prop_assert_eq!(set.remove(&key), model.remove(&key)),
                _ => prop_assert_eq!(set.contains(&key), model.contains(&key)),
            }
            prop_assert!(set.iter().eq(model.iter()));
        }
    }
}
